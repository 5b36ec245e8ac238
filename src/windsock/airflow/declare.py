"""Assets and watchers declared in YAML instead of Python.

``watchers.yaml``::

    watchers:
      orders:
        kind: webhook
        auth: hmac
        conn_id: shop
        where: data.total > 100
        batch: 500

``assets.yaml``::

    assets:
      orders:
        uri: shop/orders
        watchers: [orders]

A Dag file beside them::

    assets = load_assets(Path(__file__).parent)

    @dag(schedule=[assets["orders"]])
    def fulfil(): ...

The options are those of :class:`windsock.watchers.EventWatcher` and of the source. A mistake is refused when
the Dag is parsed, with the file and the line.
"""

from __future__ import annotations

import re
from pathlib import Path

from airflow.sdk import Asset

from windsock.airflow.watchers import EventWatcher
from windsock.definitions import Entry, entries
from windsock.events import WindsockError

__all__ = ["load_assets"]


def load_assets(directory: str | Path) -> dict[str, Asset]:
    """The assets of ``assets.yaml`` in the directory, with their watchers of ``watchers.yaml``, by name."""
    folder = Path(directory)
    watchers = {name: _watcher(name, entry) for name, entry in entries(folder / "watchers.yaml", "watchers")}
    attached: dict[str, str] = {}
    assets = {}
    for name, entry in entries(folder / "assets.yaml", "assets"):
        chosen = []
        for watcher in entry.take("watchers", list, []):
            if watcher not in watchers:
                known = ", ".join(sorted(watchers)) or "none"
                raise entry.mistake("watchers", f"no watcher {watcher!r} in watchers.yaml (it has: {known})")
            if watcher in attached:
                raise entry.mistake(
                    "watchers", f"watcher {watcher!r} is attached to {attached[watcher]!r} already"
                )
            attached[watcher] = name
            chosen.append(watchers[watcher])
        options = {
            "uri": entry.take("uri", str, name),
            "group": entry.take("group", str, "asset"),
            "extra": entry.take("extra", dict, {}),
        }
        entry.nothing_left()
        try:
            assets[name] = Asset(name=name, watchers=chosen, **options)
        except (TypeError, ValueError) as error:
            raise entry.mistake(None, str(error)) from error
    return assets


def _watcher(name: str, entry: Entry) -> EventWatcher:
    kind = entry.take("kind", str, None)
    if kind is None:
        raise entry.mistake(None, "needs a kind, such as 'files' or 'webhook'")
    try:
        return EventWatcher(name, kind=kind, **entry.options)
    except (WindsockError, TypeError) as error:
        named = next(
            (word for word in re.findall(r"[`'\"](\w+)[`'\"]", str(error)) if word in entry.lines), None
        )
        raise entry.mistake(named, str(error)) from error

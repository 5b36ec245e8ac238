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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from airflow.sdk import Asset

from windsock.airflow.watchers import EventWatcher
from windsock.events import WindsockError
from windsock.spec import SpecError

__all__ = ["load_assets"]


def load_assets(directory: str | Path) -> dict[str, Asset]:
    """The assets of ``assets.yaml`` in the directory, with their watchers of ``watchers.yaml``, by name."""
    folder = Path(directory)
    watchers = {name: _watcher(name, entry) for name, entry in _entries(folder / "watchers.yaml", "watchers")}
    attached: dict[str, str] = {}
    assets = {}
    for name, entry in _entries(folder / "assets.yaml", "assets"):
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


def _watcher(name: str, entry: _Entry) -> EventWatcher:
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


class _Entry:
    """One named block of a file: its plain options and the line of each."""

    def __init__(
        self, path: Path, name: str, line: int, options: dict[str, Any], lines: dict[str, int]
    ) -> None:
        self._path, self._name, self._line = path, name, line
        self.options = options
        self.lines = lines

    def take(self, option: str, kind: type, default: Any) -> Any:
        """The value of an option, checked and removed."""
        value = self.options.pop(option, default)
        if value is not default and not isinstance(value, kind):
            raise self.mistake(option, f"{option} must be a {kind.__name__}, not {value!r}")
        return value

    def nothing_left(self) -> None:
        """Refuse options that nobody took."""
        for option in self.options:
            raise self.mistake(option, f"unknown option {option!r}")

    def mistake(self, option: str | None, message: str) -> SpecError:
        """The error that names the file, the line and the block."""
        line = self.lines.get(option, self._line) if option else self._line
        return SpecError(f"{self._path.name}:{line}: {self._name}: {message}")


def _entries(path: Path, section: str) -> Iterator[tuple[str, _Entry]]:
    """The named blocks of a file's only section."""
    try:
        root = yaml.compose(path.read_text("utf-8"), Loader=yaml.SafeLoader)
    except FileNotFoundError as error:
        raise SpecError(f"{path} is missing: assets.yaml and watchers.yaml stand side by side") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError(f"{path.name}: {error}") from error
    if root is None:
        return
    for key, block in _pairs(path, root):
        if key.value != section:
            raise SpecError(f"{path.name}:{_line(key)}: expected '{section}:', found {key.value!r}")
        for name, options in _pairs(path, block):
            pairs = list(_pairs(path, options))
            plain = {option.value: _plain(value) for option, value in pairs}
            lines = {option.value: _line(option) for option, _ in pairs}
            yield name.value, _Entry(path, name.value, _line(name), plain, lines)


def _pairs(path: Path, node: yaml.Node) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise SpecError(f"{path.name}:{_line(node)}: expected names with values, found {node.value!r}")
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            raise SpecError(f"{path.name}:{_line(key)}: {key.value!r} is given twice")
        seen.add(key.value)
        yield key, value


def _plain(node: yaml.Node) -> Any:
    return yaml.safe_load(yaml.serialize(node, Dumper=yaml.SafeDumper))


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1

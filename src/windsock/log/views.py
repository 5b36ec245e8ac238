"""Read models: rows by key, and how far in the log they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windsock.log.subjects import View, ViewGone
from windsock.log.transaction import ALL, Row, SqlPart

_KEYS = 500
"""How many rows are asked for by name at once."""
_SWEPT = 10_000
"""How many rows are deleted in one transaction."""
_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


class Views(SqlPart):
    """The part of the log that keeps read models."""

    def views(self, name: str | None = None) -> list[View]:
        with self._transaction(write=False) as tx:
            return [_view(row) for row in tx.rows("list_views", name=name)]

    def open_view(self, name: str, version: str, *, anew: bool = False) -> View:
        now = self._clock()
        with self._transaction() as tx:
            live = tx.row("live_view", name=name)
            if live is not None and not anew:
                return _view(live)
            number = tx.rows("last_generation", name=name)[0]["n"] + 1
            shown = int(live is None)
            made = tx.run("insert_view", name=name, generation=number, version=version, live=shown, now=now)
            if not made and anew:
                raise ViewGone(f"read model {name!r} is being rebuilt by another process")
            view = _view(tx.rows("hold_view", name=name, generation=number)[0])
        # Afterwards, so that a generation's number is never given twice.
        self._sweep(name, number)
        return view

    def advance_view(
        self, view: View, rows: Mapping[str, bytes | None], *, position: int, events: int
    ) -> View | None:
        place = {"name": view.name, "generation": view.generation}
        with self._transaction() as tx:
            held = tx.row("hold_view", **place)
            if held is None or (view.live and not held["live"]):
                raise ViewGone(f"read model {view.name!r} was rebuilt meanwhile by another process")
            if held["position"] != view.position:
                return None
            changed = sorted(rows.items())
            tx.many("put_row", [{"key": k, "value": v, **place} for k, v in changed if v is not None])
            tx.many("delete_row", [{"key": k, **place} for k, v in changed if v is None])
            tx.run("advance_view", position=position, events=events, now=self._clock(), **place)
            return _view(tx.rows("hold_view", **place)[0])

    def publish_view(self, view: View) -> View:
        place = {"name": view.name, "generation": view.generation}
        with self._transaction() as tx:
            if tx.row("hold_view", **place) is None:
                raise ViewGone(f"read model {view.name!r} was rebuilt meanwhile by another process")
            tx.run("publish_view", **place)
        self._sweep(view.name, view.generation)
        return msgspec.structs.replace(view, live=True)

    def drop_view(self, name: str) -> int:
        with self._transaction() as tx:
            tx.run("publish_view", name=name, generation=0)
        return self._sweep(name, ALL)

    def _sweep(self, name: str, before: int) -> int:
        """Delete older generations that readers do not see, in pages; a crash leaves the rest to the next."""
        dropped = 0
        for view in self.views(name):
            place = {"name": name, "generation": view.generation}
            gone = view.live or view.generation >= before
            while not gone:
                with self._transaction() as tx:
                    held = tx.row("hold_view", **place)
                    if held is None or held["live"]:
                        break
                    gone = tx.run("delete_rows", size=_SWEPT, **place) < _SWEPT
                    if gone:
                        dropped += tx.run("delete_view", **place)
        return dropped

    def view_rows(
        self,
        name: str,
        *,
        generation: int | None = None,
        keys: Sequence[str] | None = None,
        prefix: str = "",
        after: str = "",
        limit: int = 100,
    ) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        with self._transaction(write=False) as tx:
            place: dict[str, Any] = {"name": name, "generation": generation, "limit": limit}
            if keys is None:
                where, bounds = _between(prefix, after)
                found = _rows(tx.rows(self._fill("view_rows", where), **place, **bounds))
            for start in range(0, len(keys or ()), _KEYS):
                named = {f"key_{n}": key for n, key in enumerate((keys or ())[start : start + _KEYS])}
                where = f"key IN ({', '.join(f':{one}' for one in named)})"
                found += _rows(tx.rows(self._fill("view_rows", where), **place, **named))
        return found


def _between(prefix: str, after: str) -> tuple[str, dict[str, str]]:
    """The condition for keys that begin with a prefix and come after a key, as a range of the index."""
    where, bounds = ["key >= :first", "key > :after"], {"first": prefix, "after": after}
    end = _successor(prefix)
    if end:
        where.append("key < :end")
        bounds["end"] = end
    return " AND ".join(where), bounds


def _successor(prefix: str) -> str:
    """The smallest text that is larger than every text with this prefix; empty if there is none."""
    stem = prefix.rstrip(chr(_LAST))
    if not stem:
        return ""
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _rows(rows: Sequence[Row]) -> list[tuple[str, bytes]]:
    return [(row["key"], bytes(row["value"])) for row in rows]


def _view(row: Row) -> View:
    return View(**({name: row[name] for name in View.__struct_fields__} | {"live": bool(row["live"])}))

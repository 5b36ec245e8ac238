"""Read models (CQRS): rows by key, made of events, brought up to date as the log grows.

::

    def add(row, event):
        row = row or {"orders": 0, "total": 0}
        return {"orders": row["orders"] + 1, "total": row["total"] + event.data["total"]}

    customers = Projection("customers", add, key="data.customer", watchers=["orders"])
    customers.update()
    customers.get("ada")            # {"orders": 2, "total": 40}
    customers.rows(prefix="a")

The rows and the position in the log up to which they are made are stored in one transaction, so an event
counts once, whoever is killed when. ``rebuild`` makes the rows anew from the first event beside the old ones,
which are read until the new ones are complete. A projection whose code has changed is rebuilt by its next
update.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from windsock.events import Event
from windsock.log import Log
from windsock.log.records import Scan
from windsock.log.subjects import View, ViewGone, indexed
from windsock.pipeline.expressions import Evaluate, Failure, compile_text
from windsock.sourcing.base import OnLog, code_version, plain
from windsock.spec import SpecError

__all__ = ["Projection", "Updated"]

_PAGE = 1000

Fold = Callable[[Any, Event], Any]
"""(row so far or None, event) → row; None deletes it."""


class Updated(msgspec.Struct, frozen=True, kw_only=True):
    """What an update did."""

    name: str
    position: int
    """Every event of the projection's watchers up to here is in the rows."""
    events: int
    """How many events this call counted."""
    rebuilt: bool


class Projection(OnLog):
    """A read model: a name, a reducer over events, and where a row's key comes from.

    :param name: under which the rows are kept
    :param reducer: (row or None, event) → row as plain JSON; None deletes the row
    :param key: CEL expression of the row's key, or a function of the event; an event for which it gives
        nothing changes no row. By default the event's subject, else its key
    :param watchers: whose events count; by default those of every watcher
    :param types: which event types count; ``*`` and ``?`` are wildcards
    :param version: of the reducer; by default made of its own code. Say it when what it calls has changed
    :param log: the log that keeps it
    """

    def __init__(
        self,
        name: str,
        reducer: Fold,
        *,
        key: str | Callable[[Event], str | None] | None = None,
        watchers: Sequence[str] | None = None,
        types: Sequence[str] = (),
        version: str | int | None = None,
        log: Log | None = None,
    ) -> None:
        super().__init__(name, log)
        self.reducer = reducer
        self.watchers = None if watchers is None else tuple(sorted(watchers))
        self.types = tuple(types)
        self._matches = re.compile("|".join(map(fnmatch.translate, types))).fullmatch if types else None
        self._key = self._key_of(key)
        scope = (self.watchers, self.types, key if isinstance(key, str) else code_version(key))
        self.version = code_version(reducer if version is None else None, version, *scope)

    def _key_of(self, key: str | Callable[[Event], str | None] | None) -> Callable[[Event], str | None]:
        if key is None:
            return lambda event: event.subject or event.key
        if not isinstance(key, str):
            return key
        try:
            evaluate: Evaluate = compile_text(key, watcher=self.name, option="key")
        except SpecError as error:
            text = str(error).replace(f"watcher {self.name!r}", f"projection {self.name!r}", 1)
            raise SpecError(text) from error

        def text_or_nothing(event: Event) -> str | None:
            value = evaluate(event)
            return None if isinstance(value, Failure) else str(value)

        return text_or_nothing

    def update(self) -> Updated:
        """Bring the rows up to date with every event that is in the log now."""
        while True:
            view = self.log.open_view(self.name, self.version)
            if view.version != self.version:
                return self.rebuild()
            try:
                view, count = self._catch_up(view)
                break
            except ViewGone:
                continue  # another process has rebuilt it: go on with what it made
        return Updated(name=self.name, position=view.position, events=count, rebuilt=False)

    def rebuild(self) -> Updated:
        """Make the rows anew from the first event in the log; the old ones are read until that is done."""
        view, count = self._catch_up(self.log.open_view(self.name, self.version, anew=True))
        self.log.publish_view(view)
        return Updated(name=self.name, position=view.position, events=count, rebuilt=True)

    def get(self, key: str) -> Any:
        """One row, or None."""
        found = self.log.view_rows(self.name, keys=[indexed(key)])
        return msgspec.json.decode(found[0][1]) if found else None

    def rows(self, *, prefix: str = "", after: str = "", limit: int = 100) -> dict[str, Any]:
        """Rows in the order of their keys: those that begin with ``prefix``, behind the key ``after``."""
        found = self.log.view_rows(self.name, prefix=prefix, after=after, limit=limit)
        return {key: msgspec.json.decode(value) for key, value in found}

    def drop(self) -> int:
        """Forget the rows and the position; how many generations there were."""
        return self.log.drop_view(self.name)

    def _catch_up(self, view: View) -> tuple[View, int]:
        """Advance a generation to the end of the log, page by page."""
        end = self.log.horizon(self.watchers)
        count = 0
        while view.position < end:
            query = Scan(
                watchers=self.watchers,
                type=self.types[0] if self._one_type() else None,
                after=view.position,
                up_to=end,
                limit=_PAGE,
            )
            events = [stored.event for stored in self.log.scan(query)]
            last = (events[-1].seq or end) if len(events) == _PAGE else end
            rows, counted = self._folded(view, events)
            further = self.log.advance_view(view, rows, position=last, events=counted)
            if further is None:
                view = self._current(view)
            else:
                view, count = further, count + counted
        return view, count

    def _one_type(self) -> bool:
        return len(self.types) == 1 and not set("*?[") & set(self.types[0])

    def _current(self, view: View) -> View:
        """The same generation, as far as another process has brought it."""
        for found in self.log.views(self.name):
            if found.generation == view.generation:
                return found
        raise ViewGone(f"read model {self.name!r} was rebuilt meanwhile by another process")

    def _folded(self, view: View, events: Sequence[Event]) -> tuple[dict[str, bytes | None], int]:
        """The rows that a page of events changes, and how many events counted."""
        keyed = []
        for event in events:
            if self._matches is None or self._matches(event.type):
                key = self._key(event)
                if key:
                    keyed.append((indexed(key), event))
        names = sorted({key for key, _ in keyed})
        found = self.log.view_rows(self.name, generation=view.generation, keys=names, limit=_PAGE)
        rows: dict[str, Any] = {key: msgspec.json.decode(value) for key, value in found}
        for key, event in keyed:
            try:
                rows[key] = self.reducer(rows.get(key), event)
            except Exception as error:
                error.add_note(f"projection {self.name!r} failed on event {event.id!r} (seq {event.seq})")
                raise
        changed = {
            key: None if row is None else plain(row, f"the row {key!r} of projection {self.name!r}")
            for key, row in rows.items()
        }
        return changed, len(keyed)

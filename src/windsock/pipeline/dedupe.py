"""The dedup label: the hash under which the log remembers that it has seen an event.

Whether an event is a duplicate is decided by the log, inside the append transaction; here only its hash is
computed: of the ``dedupe_key`` expression, of the data (``content``), or by default of the event's source and
id, as CloudEvents defines identity. An event whose key cannot be had becomes a dead letter, since nobody
could say whether it is new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from windsock.events import Event, dedup_hash
from windsock.pipeline.expressions import Evaluate, Failure, compile_text

__all__ = ["DedupeStep"]

CONTENT = "content"
"""The dedupe_key that means the data itself."""


class DedupeStep:
    """Computes the dedup hash of events inside one scope."""

    name = "dedupe"

    def __init__(self, expression: str | None, *, scope: str, watcher: str) -> None:
        self.expression = expression
        self._scope = scope
        self._text: Evaluate | None = None
        if expression == CONTENT:
            self._text = _content
        elif expression:
            self._text = compile_text(expression, watcher=watcher, option="dedupe_key")

    def label(self, events: Sequence[Event]) -> list[bytes | Failure]:
        """For each event its hash, or why it has none."""
        scope, text = self._scope, self._text
        if not text:
            return [dedup_hash(scope, f"{event.source}\0{event.id}") for event in events]
        keys = map(text, events)
        return [key if isinstance(key, Failure) else dedup_hash(scope, key) for key in keys]


def _content(event: Event) -> str:
    """The same for equal data, in whatever order its members stand."""
    plain = event.data if event.binary else msgspec.json.encode(event.data, order="sorted")
    return hashlib.blake2b(plain, digest_size=16).hexdigest()

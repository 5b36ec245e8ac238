"""One file per system. A source is registered with one row here and named by its ``kind``."""

from __future__ import annotations

import hashlib
import importlib
from typing import Any

import msgspec

from windsock.events import WindsockError
from windsock.sources.base import Cursor, Delivery, Source

__all__ = ["SOURCES", "Cursor", "Delivery", "Source", "make_source", "source_key"]

SOURCES: dict[str, str] = {
    "files": "windsock.sources.files:FilesSource",
    "memory": "windsock.sources.memory:MemorySource",
    "webhook": "windsock.sources.webhook:WebhookSource",
}
"""kind → ``module:class``. A source of one's own is named by that dotted form instead of a kind."""


def make_source(kind: str, options: dict[str, Any]) -> Source:
    """The source of ``kind``, its options checked against its config's fields."""
    factory = _factory(kind)
    try:
        config = msgspec.convert(options, factory.config)
    except msgspec.ValidationError as error:
        raise WindsockError(f"source {kind!r}: {error}") from error
    source: Source = factory(config)
    return source


def source_key(kind: str, options: dict[str, Any]) -> str:
    """The name under which readers of the same system share one lease and one cursor.

    Options that a source lists as its ``tuning`` do not count: changing them keeps the position.
    """
    tuning: frozenset[str] = getattr(_factory(kind), "tuning", frozenset())
    identity = {name: value for name, value in options.items() if name not in tuning}
    plain = msgspec.json.encode(identity, order="sorted")
    return f"{kind}:{hashlib.blake2b(plain, digest_size=8).hexdigest()}"


def _factory(kind: str) -> Any:
    target = SOURCES.get(kind, kind)
    module, _, name = target.partition(":")
    if not name:
        known = ", ".join(sorted(SOURCES))
        raise WindsockError(f"unknown source {kind!r}: use one of {known}, or 'package.module:Class'")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise WindsockError(f"source {kind!r} cannot be imported: {error}") from error

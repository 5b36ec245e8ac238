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
    target = SOURCES.get(kind, kind)
    module, _, name = target.partition(":")
    if not name:
        known = ", ".join(sorted(SOURCES))
        raise WindsockError(f"unknown source {kind!r}: use one of {known}, or 'package.module:Class'")
    factory = getattr(importlib.import_module(module), name)
    try:
        config = msgspec.convert(options, factory.config)
    except msgspec.ValidationError as error:
        raise WindsockError(f"source {kind!r}: {error}") from error
    source: Source = factory(config)
    return source


def source_key(kind: str, options: dict[str, Any]) -> str:
    """The name under which readers of the same system and options share one lease and one cursor."""
    plain = msgspec.json.encode(options, order="sorted")
    return f"{kind}:{hashlib.blake2b(plain, digest_size=8).hexdigest()}"

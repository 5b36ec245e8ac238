"""The event of an object in a store: the same shape from S3, GCS and Azure Blob, listed or notified.

Type ``windsock.object.created``, ``overwritten``, ``deleted``, ``restored`` or ``other``; source the
bucket or container, subject and key the object's key. ``data`` has at least ``bucket`` (or
``container``), ``key``, ``uri``, ``size``, ``etag``, ``last_modified`` and ``version``.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from windsock.events import Event

__all__ = ["Change", "StoredObject", "event_of"]

Change = Literal["created", "overwritten", "deleted", "restored", "other"]

_LONGEST = 500


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to one object, as a listing or a notification tells it."""

    change: Change
    source: str
    """The bucket's or container's address, such as ``s3://shop``."""
    place: Mapping[str, str]
    """The bucket or container as ``data`` names it."""
    key: str
    uri: str
    time: dt.datetime | str | None
    """When it happened."""
    size: Any = None
    etag: Any = None
    version: Any = None
    last_modified: dt.datetime | str | None = None
    sequence: Any = None
    """Orders what happens to one object, where the store says so."""
    moment: str = ""
    """What tells this change from others to the same version, the same at every redelivery."""
    more: Mapping[str, Any] = {}
    """What else is known, for ``data``."""


def event_of(found: StoredObject) -> Event:
    """The event; raises :class:`~windsock.events.InvalidEvent` for what cannot be one."""
    data = {
        **found.place,
        "key": found.key,
        "uri": found.uri,
        "size": found.size,
        "etag": found.etag,
        "last_modified": found.last_modified,
        "version": found.version,
        **found.more,
    }
    return Event.make(
        data,
        id=_identity(found),
        source=found.source,
        type=f"windsock.object.{found.change}",
        time=found.time,
        subject=found.key,
        key=found.key,
        sequence=found.sequence,
    )


def _identity(found: StoredObject) -> str:
    """The id of what happened: the same for the same change of the same version, whoever tells it."""
    plain = found.key.encode("utf-8", "surrogatepass")
    key = quote(plain)
    if len(key) > _LONGEST:
        key = hashlib.blake2b(plain, digest_size=16).hexdigest()
    # An overwritten object is a created one to a reader that does not remember the key.
    change = "" if found.change in ("created", "overwritten") else f"-{found.change}"
    parts = [str(part) for part in (found.version or found.etag, found.moment) if part]
    return f"{key}#{'-'.join(parts)}{change}"

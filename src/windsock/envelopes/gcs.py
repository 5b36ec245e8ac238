"""Notifications of Google Cloud Storage, as they come through Pub/Sub.

::

    found = read(message.data, message.attributes)
    found.change          # 'created'

What happened is in the attributes (``eventType``, ``bucketId``, ``objectId``, ``objectGeneration``), what
the object looks like in the body, unless the notification was set up without (``payloadFormat``
``NONE``). The generation is the object's version. A deletion or archival by which an object made way for
its next generation is ``other``: the new generation is announced by itself, as ``overwritten``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from windsock.envelopes.objects import Change, StoredObject
from windsock.events import InvalidEvent, parse_json

__all__ = ["read", "uri"]

_ELSEWHERE = frozenset({"name", "bucket", "generation", "size", "etag", "timeCreated"})
_ATTRIBUTES = {
    "notificationConfig": "notification_config",
    "overwroteGeneration": "overwrote_generation",
    "overwrittenByGeneration": "overwritten_by_generation",
}


def uri(bucket: str, key: str) -> str:
    """The address of an object."""
    return f"gs://{bucket}/{quote(key, errors='surrogatepass')}"


def read(body: bytes, attributes: Mapping[str, str]) -> StoredObject:
    """What a message tells; raises :class:`~windsock.events.InvalidEvent` for one that is none of GCS."""
    kind, bucket, key = (_needed(attributes, name) for name in ("eventType", "bucketId", "objectId"))
    generation = _needed(attributes, "objectGeneration")
    described: dict[str, Any] = {}
    if body and attributes.get("payloadFormat") != "NONE":
        parsed = parse_json(body)
        if not isinstance(parsed, dict):
            raise InvalidEvent("not a notification of GCS: its body is no JSON object")
        described = parsed
    change = _change(kind, attributes)
    metageneration = described.get("metageneration")
    created = change in ("created", "overwritten")
    size = described.get("size")
    more = {name: value for name, value in described.items() if name not in _ELSEWHERE}
    more |= {ours: attributes[theirs] for theirs, ours in _ATTRIBUTES.items() if theirs in attributes}
    return StoredObject(
        change=change,
        source=f"gs://{bucket}",
        place={"bucket": bucket},
        key=key,
        uri=uri(bucket, key),
        time=attributes.get("eventTime") or described.get("updated"),
        size=int(size) if isinstance(size, str) and size.isdecimal() else size,
        etag=described.get("etag"),
        version=generation,
        last_modified=described.get("timeCreated"),
        sequence=f"{generation.rjust(20, '0')}.{str(metageneration or 0).rjust(10, '0')}",
        moment="" if created else f"{kind}-{metageneration or 0}",
        more={"event": kind, **more},
    )


def _change(kind: str, attributes: Mapping[str, str]) -> Change:
    if kind == "OBJECT_FINALIZE":
        return "overwritten" if "overwroteGeneration" in attributes else "created"
    if kind in ("OBJECT_DELETE", "OBJECT_ARCHIVE") and "overwrittenByGeneration" not in attributes:
        return "deleted"
    return "other"


def _needed(attributes: Mapping[str, str], name: str) -> str:
    value = attributes.get(name)
    if not value:
        raise InvalidEvent(
            f"not a notification of GCS: the attribute {name!r} is missing; give it a subscription of its own"
        )
    return value

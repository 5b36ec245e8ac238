"""Notifications of Amazon S3, as S3 sends them and through SNS or EventBridge.

::

    found, dead = read(body)
    found[0].key          # 'in/Zürich + Bern.csv'

S3's own records come in a list, their keys URL-encoded with ``+`` for a space; EventBridge has one event
a message, with the key as it is. ``s3:TestEvent``, which S3 sends when notifications are set up, means
nothing. Both name the object's version, if the bucket has versions, and a sequencer: of two sequencers of
one object the greater one, compared as text, happened later.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote_plus

import msgspec

from windsock.envelopes import sns
from windsock.envelopes.objects import Change, StoredObject
from windsock.events import DeadLetter, InvalidEvent, normalise, parse_json
from windsock.messages import unreadable

__all__ = ["read", "stored_object", "uri"]

_CHANGES: dict[str, Change] = {
    "ObjectCreated": "created",
    "ObjectRemoved": "deleted",
    "LifecycleExpiration": "deleted",
    "Object Created": "created",
    "Object Deleted": "deleted",
    "ObjectRestore:Completed": "restored",
    "Object Restore Completed": "restored",
}


def uri(bucket: str, key: str) -> str:
    """The address of an object."""
    return f"s3://{bucket}/{quote(key, errors='surrogatepass')}"


def read(body: bytes) -> tuple[list[StoredObject], list[DeadLetter]]:
    """What a message tells, and dead letters for records that cannot be read.

    Raises :class:`~windsock.events.InvalidEvent` for a message that is none of S3's.
    """
    notification = sns.read(body)
    if notification is not None:
        if notification.confirmation:
            return [], []
        body = notification.text.encode("utf-8", "surrogatepass")
    message = parse_json(body)
    if not isinstance(message, dict):
        raise InvalidEvent("not a notification of S3: no JSON object; give S3 a queue of its own")
    if message.get("Event") == "s3:TestEvent":
        return [], []
    if "detail-type" in message:
        return [_from_eventbridge(message)], []
    records = message.get("Records")
    if not isinstance(records, list):
        raise InvalidEvent(
            "not a notification of S3: neither 'Records' nor 'detail-type'; give S3 a queue of its own"
        )
    found: list[StoredObject] = []
    dead: list[DeadLetter] = []
    for record in records:
        try:
            found.append(_from_record(record))
        except InvalidEvent as error:
            dead.append(unreadable(_original(record, body), error))
    return found, dead


def _from_record(record: Any) -> StoredObject:
    fields = _fields(record, "record")
    s3 = _fields(fields.get("s3"), "'s3'")
    bucket = _fields(s3.get("bucket"), "'s3.bucket'")
    described = _fields(s3.get("object"), "'s3.object'")
    name = _text(fields.get("eventName"), "'eventName'").removeprefix("s3:")
    known = {"bucket": bucket, "object": described}
    more = {field: value for field, value in fields.items() if field not in ("eventName", "s3")}
    more |= {field: value for field, value in s3.items() if field not in known}
    return stored_object(
        name=name,
        bucket=_text(bucket.get("name"), "'s3.bucket.name'"),
        key=unquote_plus(_text(described.get("key"), "'s3.object.key'")),
        time=fields.get("eventTime"),
        size=described.get("size"),
        etag=described.get("eTag"),
        version=described.get("versionId"),
        sequencer=described.get("sequencer"),
        marker=name.endswith(":DeleteMarkerCreated"),
        more=more,
    )


def _from_eventbridge(message: dict[str, Any]) -> StoredObject:
    if message.get("source") != "aws.s3":
        raise InvalidEvent(
            f"an event of {message.get('source')!r}, not of S3: let the rule match source 'aws.s3'"
        )
    detail = _fields(message.get("detail"), "'detail'")
    bucket = _fields(detail.get("bucket"), "'detail.bucket'")
    described = _fields(detail.get("object"), "'detail.object'")
    more = {
        field: value
        for field, value in {**message, **detail}.items()
        if field not in ("detail", "detail-type", "bucket", "object", "source", "version", "id", "time")
    }
    return stored_object(
        name=_text(message.get("detail-type"), "'detail-type'"),
        bucket=_text(bucket.get("name"), "'detail.bucket.name'"),
        key=_text(described.get("key"), "'detail.object.key'"),
        time=message.get("time"),
        size=described.get("size"),
        etag=described.get("etag"),
        version=described.get("version-id"),
        sequencer=described.get("sequencer"),
        marker=detail.get("deletion-type") == "Delete Marker Created",
        more=more,
    )


def stored_object(
    *,
    name: str,
    bucket: str,
    key: str,
    time: Any,
    size: Any,
    etag: Any,
    version: Any,
    sequencer: Any,
    marker: bool,
    more: dict[str, Any],
) -> StoredObject:
    """What one notification tells of one object."""
    change = _CHANGES.get(name) or _CHANGES.get(name.partition(":")[0], "other")
    sequence = sequencer.upper() if isinstance(sequencer, str) else None
    created = change == "created"
    return StoredObject(
        change=change,
        source=f"s3://{bucket}",
        place={"bucket": bucket},
        key=key,
        uri=uri(bucket, key),
        time=time,
        size=size,
        etag=etag.strip('"') if isinstance(etag, str) else None,
        version=version if version != "null" else None,
        last_modified=time if created else None,
        sequence=sequence,
        moment=sequencer if isinstance(sequencer, str) else str(time or ""),
        more={"event": name, **({"delete_marker": marker} if change == "deleted" else {}), **more},
    )


def _fields(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidEvent(f"not a notification of S3: {what} is missing or no object")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidEvent(f"not a notification of S3: {what} is missing or no text")
    return value


def _original(record: Any, body: bytes) -> bytes:
    try:
        return msgspec.json.encode(normalise(record))
    except InvalidEvent:
        return body

"""Azure Blob Storage's events, as Event Grid sends them in either of its schemas.

::

    found, dead = read(body)
    found[0].change       # 'created'

``Microsoft.Storage.BlobCreated``, ``BlobDeleted`` and ``BlobRenamed`` (created under its new name) tell
of a blob, and so does what else has a blob as its subject. Events of the account, and Event Grid's own,
mean nothing here.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlsplit

from windsock.envelopes import eventgrid
from windsock.envelopes.objects import Change, StoredObject
from windsock.events import DeadLetter, Event

__all__ = ["address", "read", "uri"]

_SUBJECT = re.compile(r"/blobServices/[^/]+/containers/(?P<container>[^/]+)/blobs/(?P<key>.+)", re.DOTALL)
_CHANGES: dict[str, Change] = {
    "Microsoft.Storage.BlobCreated": "created",
    "Microsoft.Storage.BlobRenamed": "created",
    "Microsoft.Storage.BlobDeleted": "deleted",
}
_ELSEWHERE = frozenset({"eTag", "contentLength", "sequencer"})
_LOCAL = ("127.0.0.1", "localhost")


def address(account_url: str, container: str) -> str:
    """The address of a container."""
    return f"{account_url.rstrip('/')}/{container}"


def uri(container_url: str, key: str) -> str:
    """The address of a blob."""
    return f"{container_url}/{quote(key, errors='surrogatepass')}"


def read(body: bytes) -> tuple[list[StoredObject], list[DeadLetter]]:
    """What a message tells, and dead letters for parts that cannot be read.

    Raises :class:`~windsock.events.InvalidEvent` for a message that is none of Event Grid's.
    """
    events, dead = eventgrid.events_of(body)
    return [found for found in map(_stored_object, events) if found is not None], dead


def _stored_object(event: Event) -> StoredObject | None:
    named = _SUBJECT.fullmatch(event.subject or "")
    if named is None:
        return None
    data: dict[str, Any] = event.data if isinstance(event.data, dict) else {}
    sequencer = data.get("sequencer")
    container, key = named["container"], named["key"]
    source = address(_account_url(data, event), container)
    created = _CHANGES.get(event.type, "other") == "created"
    return StoredObject(
        change=_CHANGES.get(event.type, "other"),
        source=source,
        place={"container": container},
        key=key,
        uri=uri(source, key),
        time=event.time,
        size=data.get("contentLength"),
        etag=data["eTag"].strip('"') if isinstance(data.get("eTag"), str) else None,
        last_modified=event.time if created else None,
        sequence=sequencer.upper() if isinstance(sequencer, str) else None,
        moment=sequencer if isinstance(sequencer, str) and sequencer else event.id,
        more={
            "event": event.type.removeprefix("Microsoft.Storage."),
            **{name: value for name, value in data.items() if name not in _ELSEWHERE},
        },
    )


def _account_url(data: dict[str, Any], event: Event) -> str:
    """The account's address: of the blob's, which a data lake has under another host name, too."""
    for name in ("blobUrl", "url", "destinationUrl"):
        if isinstance(data.get(name), str):
            try:
                parts = urlsplit(data[name])
            except ValueError:
                continue
            account = parts.path.split("/")[1] if parts.hostname in _LOCAL and "/" in parts.path else ""
            host = parts.netloc.replace(".dfs.", ".blob.")
            return f"{parts.scheme}://{host}/{account}".rstrip("/")
    account = event.source.rpartition("/storageAccounts/")[2]
    return f"https://{account}.blob.core.windows.net"

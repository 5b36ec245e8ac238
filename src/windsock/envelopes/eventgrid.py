"""Azure Event Grid's events, in its own schema and as CloudEvents, one or a list of them.

::

    events, dead = events_of(body)
    events[0].type        # 'Microsoft.Storage.BlobCreated'
    events[0].subject     # '/blobServices/default/containers/in/blobs/orders.csv'

Event Grid's own fields become the event's: ``eventType`` its type, ``topic`` its source, ``eventTime`` its
time, ``dataVersion`` and ``metadataVersion`` extensions; fields that are not known go along as headers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windsock import cloudevents
from windsock.events import DeadLetter, Event, InvalidEvent, normalise, parse_json
from windsock.messages import unreadable

__all__ = ["VALIDATION", "event_of", "events_of"]

VALIDATION = "Microsoft.EventGrid.SubscriptionValidationEvent"
"""The type of the event with which Event Grid asks an endpoint whether it wants to receive."""

_KNOWN = frozenset(
    {"id", "topic", "subject", "eventType", "eventTime", "data", "dataVersion", "metadataVersion"}
)


def events_of(body: bytes) -> tuple[list[Event], list[DeadLetter]]:
    """The events of a body, and dead letters for elements that are none.

    Raises :class:`InvalidEvent` for a body that is neither a JSON object nor a list.
    """
    document = parse_json(body)
    if not isinstance(document, dict | list):
        raise InvalidEvent("not Event Grid's: a JSON object or a list of them is needed")
    events: list[Event] = []
    dead: list[DeadLetter] = []
    for element in document if isinstance(document, list) else [document]:
        try:
            events.append(event_of(element))
        except InvalidEvent as error:
            dead.append(unreadable(_original(element, body), error))
    return events, dead


def event_of(element: Any) -> Event:
    """One event in either schema; raises :class:`InvalidEvent`."""
    if not isinstance(element, dict):
        raise InvalidEvent("not an event of Event Grid: no JSON object")
    if "specversion" in element:
        return cloudevents.from_structured(element)
    if not element.get("id") or not element.get("eventType"):
        raise InvalidEvent("not an event of Event Grid: 'id' or 'eventType' is missing")
    return Event.make(
        element.get("data"),
        id=element["id"],
        source=element.get("topic") or "eventgrid",
        type=element["eventType"],
        subject=element.get("subject"),
        time=element.get("eventTime") or None,
        extensions={
            "dataversion": element.get("dataVersion") or None,
            "metadataversion": element.get("metadataVersion") or None,
        },
        headers={name: value for name, value in element.items() if name not in _KNOWN},
    )


def _original(element: Any, body: bytes) -> bytes:
    try:
        return msgspec.json.encode(normalise(element))
    except InvalidEvent:
        return body

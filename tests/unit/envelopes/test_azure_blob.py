"""Azure Blob's events in both of Event Grid's schemas, whole and broken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.envelopes import azure_blob
from windsock.envelopes.objects import event_of
from windsock.events import Event, InvalidEvent

GRID = {
    "topic": "/subscriptions/{id}/resourceGroups/Storage/providers/Microsoft.Storage/storageAccounts/shop",
    "subject": "/blobServices/default/containers/in/blobs/2026/orders + ü.csv",
    "eventType": "Microsoft.Storage.BlobCreated",
    "eventTime": "2026-06-26T18:41:00.9584103Z",
    "id": "831e1650-001e-001b-66ab-eeb76e069631",
    "data": {
        "api": "PutBlockList",
        "clientRequestId": "6d79dbfb-0e37-4fc4-981f-442c9ca65760",
        "requestId": "831e1650-001e-001b-66ab-eeb76e000000",
        "eTag": '"0x8D4BCC2E4835CD0"',
        "contentType": "text/csv",
        "contentLength": 524288,
        "blobType": "BlockBlob",
        "url": "https://shop.blob.core.windows.net/in/2026/orders%20%2B%20%C3%BC.csv",
        "sequencer": "00000000000004420000000000028963",
        "storageDiagnostics": {"batchId": "b68529f3-68cd-4744-baa4-3c0498ec19f0"},
    },
    "dataVersion": "",
    "metadataVersion": "1",
}
CLOUD = {
    "specversion": "1.0",
    "source": GRID["topic"],
    "subject": GRID["subject"],
    "type": GRID["eventType"],
    "time": GRID["eventTime"],
    "id": GRID["id"],
    "data": GRID["data"],
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


def events(document: Any) -> list[Event]:
    found, dead = azure_blob.read(json.dumps(document).encode())
    assert dead == []
    return [event_of(each) for each in found]


@pytest.mark.parametrize("document", [GRID, CLOUD, [GRID], [CLOUD]], ids=["grid", "cloud", "grids", "clouds"])
def test_both_schemas(document: Any) -> None:
    """An event becomes the same in each form, with all that is known of the blob."""
    (event,) = events(document)
    key = "2026/orders + ü.csv"
    assert event.id == "2026/orders%20%2B%20%C3%BC.csv#0x8D4BCC2E4835CD0-00000000000004420000000000028963"
    assert event.source == "https://shop.blob.core.windows.net/in"
    assert event.type == "windsock.object.created"
    assert event.subject == event.key == key
    assert event.sequence == "00000000000004420000000000028963"
    assert event.data["uri"] == GRID["data"]["url"]  # type: ignore[index]
    assert event.data["container"] == "in"
    assert event.data["size"] == 524288
    assert event.data["etag"] == "0x8D4BCC2E4835CD0"
    assert event.data["contentType"] == "text/csv"
    assert event.data["storageDiagnostics"] == {"batchId": "b68529f3-68cd-4744-baa4-3c0498ec19f0"}


@pytest.mark.parametrize(
    ("name", "change"),
    [("BlobDeleted", "deleted"), ("BlobRenamed", "created"), ("BlobTierChanged", "other"), ("New", "other")],
)
def test_what_happened(name: str, change: str) -> None:
    """Each kind of event says what happened; those not known yet are kept as other."""
    (event,) = events({**GRID, "eventType": f"Microsoft.Storage.{name}"})
    assert event.type == f"windsock.object.{change}"
    assert event.data["event"] == name


def test_a_data_lake() -> None:
    """The address of a data lake's file is that of its blob."""
    data = {"url": "https://shop.dfs.core.windows.net/in/a"}
    (event,) = events({**GRID, "subject": "/blobServices/default/containers/in/blobs/a", "data": data})
    assert event.source == "https://shop.blob.core.windows.net/in"
    assert event.id == f"a#{GRID['id']}"


def test_without_an_address() -> None:
    """Without the blob's address the account's name gives it."""
    (event,) = events({**GRID, "data": {}})
    assert event.source == "https://shop.blob.core.windows.net/in"


def test_what_tells_of_no_blob() -> None:
    """Events of the account and of Event Grid itself mean nothing here."""
    policy = {**GRID, "subject": "BlobDataManagement/BlobInventory"}
    validation = {**GRID, "subject": "", "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent"}
    assert events([policy, validation]) == []


def test_a_broken_event_among_good_ones() -> None:
    """An event that cannot be read becomes a dead letter, and its neighbours go on."""
    found, dead = azure_blob.read(json.dumps([GRID, {"subject": "broken"}, CLOUD]).encode())
    assert len(found) == 2
    assert b"broken" in dead[0].body


@given(st.binary())
def test_any_bytes(body: bytes) -> None:
    """No message raises anything but InvalidEvent."""
    _read(body)


@given(st.data())
def test_any_damage(data: st.DataObject) -> None:
    """An event with any part replaced or cut off raises nothing but InvalidEvent."""
    document = json.loads(json.dumps(data.draw(st.sampled_from([GRID, CLOUD]))))
    place = document if data.draw(st.booleans()) else document["data"]
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    body = json.dumps(document).encode()
    _read(body)
    _read(body[: data.draw(st.integers(0, len(body)))])


def _read(body: bytes) -> None:
    try:
        found, _ = azure_blob.read(body)
        for each in found:
            event_of(each)
    except InvalidEvent:
        pass  # what it is for

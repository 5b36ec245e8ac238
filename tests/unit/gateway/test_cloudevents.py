"""CloudEvents through both doors, in the three modes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from windsock.log.records import EventQuery

EVENT = {
    "specversion": "1.0",
    "id": "c-1",
    "source": "https://shop.example/orders",
    "type": "order.created",
    "subject": "42",
    "partitionkey": "customer-7",
    "region": "north",
    "data": {"total": 120},
}
STRUCTURED = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
BATCH = {"Content-Type": "application/cloudevents-batch+json"}
BINARY = {
    "ce-specversion": "1.0",
    "ce-id": "c-1",
    "ce-source": "https://shop.example/orders",
    "ce-type": "order.created",
    "ce-subject": "42",
    "ce-partitionkey": "customer-7",
    "ce-region": "north",
    "Content-Type": "application/json",
}


def doc(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (EVENT | changes).items() if value is not None}


@pytest.mark.parametrize("path", ["/hooks/orders", "/events", "/events?watcher=orders"])
@pytest.mark.parametrize(
    ("headers", "body"),
    [(STRUCTURED, json.dumps(EVENT)), (BINARY, json.dumps(EVENT["data"]))],
    ids=["structured", "binary"],
)
async def test_one_event(site: Any, path: str, headers: dict[str, str], body: str) -> None:
    """A single CloudEvent is stored with its own id, source, type, key and extensions, by either door."""
    site.watch()
    answer = await site.post(path, content=body, headers=headers)
    assert answer.status_code == 202, answer.text
    [record] = site.log.events(EventQuery())
    event = record.event
    assert answer.json() == {"status": "accepted", "id": "c-1", "seq": event.seq}
    assert (event.id, event.source, event.type) == ("c-1", "https://shop.example/orders", "order.created")
    assert (event.subject, event.key, event.extensions) == ("42", "customer-7", {"region": "north"})
    assert event.data == {"total": 120}


async def test_modes_share_their_identity(site: Any) -> None:
    """An event that comes again in another mode is a duplicate: source and id tell, not the form."""
    site.watch()
    first = await site.post("/events", content=json.dumps(EVENT), headers=STRUCTURED)
    again = await site.post("/events", content=b"{}", headers=BINARY)
    assert (again.status_code, again.json()) == (
        200,
        {"status": "duplicate", "id": "c-1", "seq": first.json()["seq"]},
    )


async def test_a_batch_is_answered_event_by_event(site: Any) -> None:
    """New, repeated, unwanted, impossible and invalid events of one batch each get their own verdict."""
    site.watch(where="type == 'order.created'", key="data.customer")
    await site.post("/events", content=json.dumps(doc(id="old", data={"customer": "7"})), headers=STRUCTURED)
    batch = [
        doc(id="old", data={"customer": "7"}),
        doc(id="a", data={"customer": "7"}),
        doc(id="b", type="order.seen", data={"customer": "7"}),
        doc(id="c", data={}),
        doc(id="a", data={"customer": "7"}),
        doc(source=None, id="d"),
        doc(id="e", data={"customer": "8"}),
    ]
    answer = await site.post("/events", content=json.dumps(batch), headers=BATCH)
    assert answer.status_code == 202
    results = answer.json()["events"]
    assert [(result["status"], result["id"]) for result in results] == [
        ("duplicate", "old"),
        ("accepted", "a"),
        ("filtered", "b"),
        ("dead", "c"),
        ("duplicate", "a"),
        ("accepted", "e"),
        ("dead", None),
    ]
    assert results[4]["seq"] == results[1]["seq"]
    assert "source" in results[6]["reason"]
    assert [record.event.id for record in site.log.events(EventQuery())] == ["e", "a", "old"]
    assert len(site.log.dead_letters()) == 2
    [health] = site.log.health()
    assert (health.logged, health.duplicates, health.filtered, health.dead) == (3, 2, 1, 2)


async def test_an_empty_batch(site: Any) -> None:
    """A batch of nothing is a valid batch."""
    site.watch()
    answer = await site.post("/events", content=b"[]", headers=BATCH)
    assert (answer.status_code, answer.json()) == (200, {"events": []})


@pytest.mark.parametrize(
    ("headers", "body", "detail"),
    [
        (STRUCTURED, json.dumps(doc(id=None)), "'id'"),
        (STRUCTURED, json.dumps(doc(specversion="0.3")), "'specversion'"),
        (STRUCTURED, json.dumps(doc(time="yesterday")), "'time'"),
        (STRUCTURED, json.dumps(doc(data_base64="!", data=None)), "'data_base64'"),
        (STRUCTURED, "[" * 200_000, "JSON"),
        (STRUCTURED, "", "JSON"),
        (STRUCTURED, json.dumps(doc(id="i" * 1025)), "id is longer than 1024"),
        (BINARY | {"ce-id": ""}, "{}", "'id'"),
        (BINARY, "{", "JSON"),
        (BATCH, json.dumps(EVENT), "array"),
        (BATCH, json.dumps([doc(id=None), 5]), "'id'"),
    ],
)
async def test_an_invalid_event_is_422(site: Any, headers: dict[str, str], body: str, detail: str) -> None:
    """What is wrong is named, and nothing is stored: the sender knows that it was not accepted."""
    site.watch()
    answer = await site.post("/events", content=body, headers=headers)
    assert answer.status_code == 422
    assert detail in answer.json()["detail"]
    assert site.stored() == []
    assert site.log.dead_letters() == []


@pytest.mark.parametrize(
    "content_type", ["application/json", "text/plain", "application/cloudevents+avro", None]
)
async def test_anything_else_is_415(site: Any, content_type: str | None) -> None:
    """This door takes CloudEvents only, in formats that it can read."""
    site.watch()
    headers = {"Content-Type": content_type} if content_type else {}
    answer = await site.post("/events", content=b"{}", headers=headers)
    assert answer.status_code == 415
    assert "application/cloudevents+json" in answer.json()["detail"]


async def test_binary_data_stays_binary(site: Any) -> None:
    """data_base64 is the bytes that it stands for."""
    site.watch()
    coded = base64.b64encode(b"\x00\xff").decode()
    await site.post("/events", content=json.dumps(doc(data=None, data_base64=coded)), headers=STRUCTURED)
    assert site.stored() == [b"\x00\xff"]


async def test_which_watcher(site: Any) -> None:
    """With several webhook watchers the sender names one, in the query or in a header."""
    send: dict[str, Any] = {"content": json.dumps(EVENT), "headers": STRUCTURED}
    site.watch("orders")
    site.watch("returns")
    site.watch("letters", kind="files", path="/in")
    assert (await site.post("/events?watcher=letters", **send)).status_code == 404
    unnamed = await site.post("/events", **send)
    assert unnamed.status_code == 422
    assert "X-Windsock-Watcher" in unnamed.json()["detail"]
    assert (await site.post("/events?watcher=orders", **send)).status_code == 202
    send["headers"] = STRUCTURED | {"X-Windsock-Watcher": "returns"}
    assert (await site.post("/events", **send)).status_code == 202
    assert sorted(record.watcher for record in site.log.events(EventQuery())) == ["orders", "returns"]


async def test_authentication_is_the_watchers(site: Any) -> None:
    """The CloudEvents door asks for the same proof as the watcher's own."""
    site.watch(auth="bearer", conn_id="shop")
    answer = await site.post("/events", content=json.dumps(EVENT), headers=STRUCTURED)
    assert answer.status_code == 401

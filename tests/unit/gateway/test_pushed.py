"""Systems that push: Pub/Sub, Event Grid and Debezium Server, from the request to the log."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from unit.gateway.senders import CORPORA, JSON, SECRET, only, standard
from windsock.events import Category
from windsock.log.records import EventQuery

PUBSUB = {
    path.name: path.read_bytes() for path in sorted((CORPORA / "gcp").glob("MessagePublishedData-*.json"))
}
CHANGES = (CORPORA / "debezium" / "postgres-live.jsonl").read_text().splitlines()


@pytest.mark.parametrize("name", PUBSUB)
async def test_pubsub(site: Any, name: str) -> None:
    """Google's own examples of a push become the published message, once."""
    site.watch(preset="pubsub", auth="query", conn_id="shop")
    answers = [
        await site.post(f"/hooks/orders?token={SECRET}", content=PUBSUB[name], headers=JSON) for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [202, 200]
    event = only(site)
    assert event.source == "pubsub://projects/my-project/subscriptions/my-subscription"
    assert event.time.isoformat().startswith("2021-02-05T04:06:14")
    if "text" in name:
        assert (event.data, event.headers) == ("test message 3", {"attr1": "attr1-value"})
    else:
        assert (event.data, event.binary) == (b"\x01\x02\x03\x04", True)


def pushed(data: bytes, **message: Any) -> bytes:
    fields = {"data": base64.b64encode(data).decode(), "messageId": "7", **message}
    return json.dumps({"message": fields, "subscription": "projects/p/subscriptions/s"}).encode()


async def test_pubsub_keeps_key_and_cloudevents(site: Any) -> None:
    """The ordering key is the key; a CloudEvent in the attributes is itself, and a dead letter if broken."""
    site.watch(preset="pubsub", auth="none")
    await site.post(content=pushed(b'{"a": 1}', orderingKey="k", publishTime="2026-11-03T10:00:00Z"))
    event = only(site)
    assert (event.id, event.key, event.data, event.type) == ("7", "k", {"a": 1}, "windsock.pubsub")
    ce = {
        "ce-specversion": "1.0",
        "ce-id": "e",
        "ce-source": "/s",
        "ce-type": "t",
        "content-type": "text/plain",
    }
    answer = await site.post(content=pushed(b"hi", attributes=ce))
    assert answer.json()["id"] == "e"
    answer = await site.post(content=pushed(b"hi", attributes={**ce, "ce-specversion": "9"}))
    assert (answer.status_code, answer.json()["status"]) == (200, "dead")
    [letter] = site.log.dead_letters()
    assert letter.category == Category.INVALID


def grid(*ids: str) -> list[dict[str, Any]]:
    return [
        {
            "id": id,
            "topic": "/subscriptions/1/storage",
            "subject": f"/blobs/{id}",
            "eventType": "Microsoft.Storage.BlobCreated",
            "eventTime": "2026-11-03T10:00:00.1234567Z",
            "data": {"url": id},
            "dataVersion": "2",
            "metadataVersion": "1",
        }
        for id in ids
    ]


async def test_event_grid(site: Any) -> None:
    """A delivery's events are stored each, in either schema, and what is none is set aside."""
    site.watch(preset="eventgrid", auth="none")
    answer = await site.post(
        json=[*grid("a", "b"), {"id": "no type"}], headers={"aeg-event-type": "Notification"}
    )
    assert answer.status_code == 202
    assert [result["status"] for result in answer.json()["events"]] == ["accepted", "accepted", "dead"]
    cloud = {"specversion": "1.0", "id": "c", "source": "/topic", "type": "Microsoft.Storage.BlobCreated"}
    answer = await site.post(
        content=json.dumps(cloud), headers={"Content-Type": "application/cloudevents+json; charset=utf-8"}
    )
    assert answer.status_code == 202
    events = {record.event.id: record.event for record in site.log.events(EventQuery())}
    assert events["a"].type == events["c"].type == "Microsoft.Storage.BlobCreated"
    assert events["a"].subject == "/blobs/a"
    assert events["a"].extensions == {"dataversion": "2", "metadataversion": "1"}
    assert (await site.post(json=[])).json() == {"events": []}


async def test_event_grids_validation(site: Any) -> None:
    """The validation of a subscription is answered with its code, to who may send, and is no event."""
    site.watch(preset="eventgrid", auth="query", conn_id="shop")
    event = {
        "id": "v",
        "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
        "data": {"validationCode": "512d38b6", "validationUrl": "https://rp.example.com/validate"},
    }
    asked = {"aeg-event-type": "SubscriptionValidation"}
    answer = await site.post(f"/hooks/orders?token={SECRET}", json=[event], headers=asked)
    assert (answer.status_code, answer.json()) == (200, {"validationResponse": "512d38b6"})
    assert (await site.post("/hooks/orders?token=x", json=[event], headers=asked)).status_code == 401
    for broken in ([], [{"data": {}}], {"data": []}, 7):
        answer = await site.post(f"/hooks/orders?token={SECRET}", json=broken, headers=asked)
        assert answer.status_code == 422
    assert site.stored() == []


async def test_the_handshake_of_cloudevents(site: Any) -> None:
    """OPTIONS with an origin is answered for who may send to Event Grid's preset, and for nobody else."""
    site.watch(preset="eventgrid", auth="query", conn_id="shop")
    site.watch("other")
    origin = {"WebHook-Request-Origin": "eventgrid.azure.net"}
    answer = await site.client.options(f"/hooks/orders?token={SECRET}", headers=origin)
    assert answer.status_code == 200
    assert answer.headers["WebHook-Allowed-Origin"] == "eventgrid.azure.net"
    assert answer.headers["WebHook-Allowed-Rate"] == "*"
    assert (await site.client.options("/hooks/orders?token=x", headers=origin)).status_code == 401
    assert (await site.client.options(f"/hooks/orders?token={SECRET}")).status_code == 405
    assert (await site.client.options("/hooks/other", headers=origin)).status_code == 405
    assert (await site.client.options("/hooks/nobody", headers=origin)).status_code == 404


async def test_debezium_server(site: Any) -> None:
    """Every captured change that Debezium Server posts, signed as it signs, is stored once."""
    site.watch(preset="debezium", auth="standard", conn_id="shop")
    values = [json.loads(line).get("value") for line in CHANGES]
    bodies = [value.encode() for value in values if value is not None]
    assert bodies
    for _ in range(2):
        for number, body in enumerate(bodies):
            answer = await site.post(
                content=body, headers=standard(body, f"m-{time.monotonic_ns()}-{number}")
            )
            assert answer.status_code in (200, 202), answer.text
    events = [record.event for record in site.log.events(EventQuery(limit=1000))]
    assert {"debezium.create", "debezium.update", "debezium.delete"} <= {event.type for event in events}
    assert len({event.id for event in events}) == len(events)
    assert site.log.dead_letters() == []


async def test_a_signed_change_takes_no_unsigned_headers(site: Any) -> None:
    """A captured change cannot come again as another CloudEvent, whose headers nobody signed."""
    site.watch(preset="debezium", auth="standard", conn_id="shop")
    body = json.loads(CHANGES[0])["value"].encode()
    ce = {"ce-specversion": "1.0", "ce-id": "mine", "ce-source": "me", "ce-type": "t"}
    assert (await site.post(content=body, headers={**standard(body), **ce})).status_code == 415
    assert site.stored() == []


async def test_debezium_filters_and_dead_letters(site: Any) -> None:
    """Unwanted operations are answered and not stored; what is no change is set aside, not sent for ever."""
    site.watch(preset="debezium", auth="none", changes={"operations": ["delete"]})
    change = {
        "op": "c",
        "before": None,
        "after": {"id": 1},
        "source": {"name": "shop", "table": "t", "lsn": 7},
    }
    answer = await site.post(json=change)
    assert (answer.status_code, answer.json()) == (200, {"events": []})
    assert (await site.post(json={**change, "op": "d"})).status_code == 202
    answer = await site.post(json={"op": "?"})
    assert (answer.status_code, answer.json()["status"]) == (200, "dead")
    assert (await site.post(content=b"{", headers=JSON)).status_code == 422
    event = {"specversion": "1.0", "id": "e", "source": "/dbz", "type": "io.debezium.change"}
    headers = {"Content-Type": "application/cloudevents+json"}
    assert (await site.post(content=json.dumps(event), headers=headers)).json()["id"] == "e"

"""``POST /hooks/<watcher>``: what a request becomes, and what its sender is told."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from windsock.log.records import EventQuery


async def test_accepted_after_the_commit(site: Any) -> None:
    """A new event is answered with 202, its id and its place in the log, where it can be found."""
    site.watch()
    answer = await site.post(json={"total": 120}, headers={"X-Windsock-Delivery": "d-1"})
    assert answer.status_code == 202
    [record] = site.log.events(EventQuery())
    assert answer.json() == {"status": "accepted", "id": "d-1", "seq": record.event.seq}
    event = record.event
    assert (event.source, event.type, event.id) == ("webhook:orders", "windsock.webhook", "d-1")
    assert event.data == {"total": 120}
    assert event.time is not None


@pytest.mark.parametrize("header", ["X-Windsock-Delivery", "Idempotency-Key"])
async def test_a_second_delivery_is_a_duplicate(site: Any, header: str) -> None:
    """The same delivery id again is answered with 200 and the first one's place, and stored once."""
    site.watch()
    first = await site.post(json=1, headers={header: "d-1"})
    again = await site.post(json=1, headers={header: "d-1"})
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json() == {"status": "duplicate", "id": "d-1", "seq": first.json()["seq"]}
    assert site.stored() == [1]


async def test_without_a_delivery_id_every_request_is_new(site: Any) -> None:
    """Equal bodies are not taken for retries: two identical orders are two orders."""
    site.watch()
    answers = [await site.post(json=1) for _ in range(2)]
    assert [answer.json()["status"] for answer in answers] == ["accepted", "accepted"]
    assert site.stored() == [1, 1]


async def test_filtered(site: Any) -> None:
    """What the watcher's filter does not want is answered with 200, counted and not stored."""
    site.watch(where="data.total > 100")
    answer = await site.post(json={"total": 1}, headers={"X-Windsock-Delivery": "d-1"})
    assert (answer.status_code, answer.json()) == (200, {"status": "filtered", "id": "d-1"})
    assert site.stored() == []
    [health] = site.log.health()
    assert health.filtered == 1


async def test_dead(site: Any) -> None:
    """What a step cannot handle is answered with 200 and the reason, and stands among the dead letters."""
    site.watch(key="data.order.id")
    answer = await site.post(json={"total": 1}, headers={"X-Windsock-Delivery": "d-1"})
    [letter] = site.log.dead_letters()
    assert (answer.status_code, answer.json()) == (
        200,
        {"status": "dead", "id": "d-1", "reason": letter.reason},
    )
    assert site.stored() == []


async def test_type_and_trace_come_from_headers(site: Any) -> None:
    """The event's type is the named header's, and a W3C trace context is carried along."""
    site.watch(type_header="X-GitHub-Event", id_header="X-GitHub-Delivery", type="github.unknown")
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await site.post(
        json={}, headers={"X-GitHub-Event": "push", "X-GitHub-Delivery": "g-1", "traceparent": trace}
    )
    await site.post(json={})
    unknown, push = site.log.events(EventQuery())
    assert (push.event.type, push.event.id, push.event.traceparent) == ("push", "g-1", trace)
    assert unknown.event.type == "github.unknown"


@pytest.mark.parametrize(
    ("content_type", "body", "data"),
    [
        ("application/json", b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        ("application/vnd.shop+json; charset=utf-8", b"[]", []),
        ("application/json", b"", None),
        ("application/json", b"[NaN, -Infinity]", ["NaN", "-Infinity"]),
        ("application/json", b'"\\ud800"', "\\ud800"),
        ("application/json", b"123456789012345678901234567890", "123456789012345678901234567890"),
        ("application/json", b"\xef\xbb\xbf{}", {}),
        ("text/plain", "grün".encode(), "grün"),
        ("text/plain; charset=ISO-8859-1", b"gr\xfcn", "grün"),
        ("text/plain", b"gr\xfcn", b"gr\xfcn"),
        ("application/x-www-form-urlencoded", b"a=1&b=2", "a=1&b=2"),
        ("application/xml", b"<a/>", "<a/>"),
        ("application/octet-stream", b"\x00\xff", b"\x00\xff"),
        ("", b'{"a": 1}', {"a": 1}),
        ("", b"{a: 1}", b"{a: 1}"),
        ("", b"\xff\xfe\xfd", b"\xff\xfe\xfd"),
        ("nonsense;;;=", b"x", b"x"),
    ],
)
async def test_bodies(site: Any, content_type: str, body: bytes, data: object) -> None:
    """Any body becomes an event, its data read as the content type says."""
    site.watch()
    answer = await site.post(content=body, headers={"Content-Type": content_type} if content_type else {})
    assert answer.status_code == 202, answer.text
    assert site.stored() == [data]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"{", "the body is not JSON: JSONDecodeError: Expecting property name"),
        (b'{"a": 1} x', "the body is not JSON: JSONDecodeError: Extra data: line 1 column 10"),
        (b'"\xff\xfe"', "the body is not JSON"),
        (b"9" * 5000, "the body is not JSON"),
        (b"[" * 200_000, "the body is not JSON: RecursionError"),
        (b"[" * 150 + b"]" * 150, "nested deeper than 100"),
    ],
)
async def test_malformed_json_is_refused(site: Any, body: bytes, detail: str) -> None:
    """JSON that is none is the sender's to repair: 422 with what and where, and nothing stored."""
    site.watch()
    answer = await site.post(content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert detail in answer.json()["detail"]
    assert site.stored() == []
    assert site.log.dead_letters() == []


async def test_an_endless_id_is_refused(site: Any) -> None:
    """A delivery id is kept for ever, so its length is bounded."""
    site.watch()
    answer = await site.post(json=1, headers={"X-Windsock-Delivery": "d" * 1025})
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "the event's id is longer than 1024 characters",
    )


async def test_unknown_and_other_watchers_look_alike(site: Any) -> None:
    """A name that does not exist and a watcher that is no webhook get the same 404."""
    site.watch("letters", kind="files", path="/in")
    unknown = await site.post("/hooks/nobody", json=1)
    other = await site.post("/hooks/letters", json=1)
    assert (unknown.status_code, other.status_code) == (404, 404)
    assert unknown.content == other.content


async def test_other_methods_and_paths(site: Any) -> None:
    """Only POST is understood, and there is no page that lists the doors."""
    site.watch()
    assert (await site.client.get("/hooks/orders")).status_code == 405
    for path in ("/", "/docs", "/openapi.json", "/hooks", "/hooks/a/b"):
        assert (await site.client.get(path)).status_code == 404


async def test_health(site: Any) -> None:
    """The health page answers without the log and without a secret."""
    site.log.away = True
    answer = await site.client.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_a_changed_definition_counts_soon(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that is registered again gets its new filter when the old definition is two seconds old."""
    now = 0.0
    monkeypatch.setattr(site.app.state.gateway._hooks, "_clock", lambda: now)
    site.watch()
    assert (await site.post(json={"total": 1})).json()["status"] == "accepted"
    site.watch(where="data.total > 100")
    now = 1.9
    assert (await site.post(json={"total": 1})).json()["status"] == "accepted"
    now = 2.0
    assert (await site.post(json={"total": 1})).json()["status"] == "filtered"


async def test_a_new_watcher_is_found_at_once(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that was unknown is looked up again after a fifth of a second, not after two."""
    now = 0.0
    monkeypatch.setattr(site.app.state.gateway._hooks, "_clock", lambda: now)
    assert (await site.post(json=1)).status_code == 404
    site.watch()
    assert (await site.post(json=1)).status_code == 404
    now = 0.2
    assert (await site.post(json=1)).status_code == 202


@pytest.mark.parametrize(
    "wrong", [{"where": "data.total >"}, {"where": "no.such:function"}, {"header": "a b"}]
)
async def test_a_broken_definition_is_503(
    site: Any, wrong: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """A watcher that cannot be compiled asks its senders to wait, says why in the log, and harms no other."""
    site.watch(**wrong)
    site.watch("fine")
    with caplog.at_level(logging.ERROR, "windsock.gateway"):
        answers = [await site.post(json=1) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {503}
    assert all(answer.headers["Retry-After"] == "30" for answer in answers)
    assert [record.message.split(" error=")[0] for record in caplog.records] == [
        "windsock.gateway.watcher_broken watcher=orders"
    ]
    assert (await site.post("/hooks/fine", json=1)).status_code == 202


async def test_a_log_that_is_away_is_503(site: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Without the log nothing is accepted: the sender is asked to try again, and then it works."""
    site.watch()
    site.log.away = True
    cold = await site.post(json=1)
    site.log.away = False
    assert (await site.post(json=2)).status_code == 202
    site.log.away = True
    warm = await site.post(json=3)
    for answer in (cold, warm):
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "2"
        assert answer.json() == {"detail": "the event log cannot be reached: try again"}
    assert (
        "windsock.gateway.log_unreachable error=LogUnavailable: event log: connection refused" in caplog.text
    )
    site.log.away = False
    assert (await site.post(json=4)).status_code == 202
    assert site.stored() == [2, 4]


async def test_an_unexpected_error_shows_nothing(
    site: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake in our own code is a 503 without a word of it, and a traceback in the server's log."""
    site.watch()

    def broken(*_: object) -> None:
        raise RuntimeError("inner workings")

    monkeypatch.setattr("windsock.gateway.receive.check_length", broken)
    answer = await site.post(json=1)
    assert answer.status_code == 503
    assert "inner" not in answer.text
    assert "RuntimeError: inner workings" in caplog.text


async def test_two_hundred_at_once(site: Any) -> None:
    """Concurrent requests are each accepted once, and share commits."""
    site.watch()
    answers = await asyncio.gather(
        *(site.post(json=n, headers={"X-Windsock-Delivery": f"d-{n}"}) for n in range(200))
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["seq"] for answer in answers}) == 200
    assert sorted(site.stored()) == list(range(200))
    assert site.log.appends < 200


async def test_twins_at_once(site: Any) -> None:
    """Of fifty simultaneous deliveries with one id, one is accepted and all the others are its duplicates."""
    site.watch()
    answers = await asyncio.gather(
        *(site.post(json=1, headers={"Idempotency-Key": "same"}) for _ in range(50))
    )
    assert sorted(answer.json()["status"] for answer in answers) == ["accepted"] + ["duplicate"] * 49
    assert len({answer.json()["seq"] for answer in answers}) == 1
    assert site.stored() == [1]

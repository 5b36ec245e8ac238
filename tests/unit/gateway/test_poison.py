"""Whatever is sent, there is an answer that makes sense, and the neighbours are served."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windsock.gateway import Secret, create_app
from windsock.log.records import EventQuery
from windsock.log.sqlite import SqliteLog
from windsock.spec import WatcherSpec

ANSWERS = {200, 202, 413, 415, 422}

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["specversion", "id", "source", "type", "time", "data", "data_base64", "dataschema", "x"])
    | st.text(max_size=6),
    st.sampled_from(["1.0", "", "a", "\x00", "\ud800", "2026-01-01T00:00:00Z", 10**30]) | JSON_VALUES,
)
GOOD = {"specversion": "1.0", "id": "a", "source": "s", "type": "t"}
EVENTS = ATTRIBUTES.map(lambda some: json.dumps(GOOD | some))
BODIES = (
    st.binary(max_size=300)
    | JSON_VALUES.map(json.dumps).map(str.encode)
    | EVENTS.map(str.encode)
    | st.lists(EVENTS, max_size=4).map(lambda events: f"[{','.join(events)}]".encode())
    | st.integers(1, 3000).map(lambda depth: b"[" * depth + b"]" * depth)
    | st.integers(1, 3000).map(
        lambda depth: json.dumps([GOOD, GOOD | {"id": "", "data": 0}]).encode().replace(
            b": 0}", b": " + b"[" * depth + b"]" * depth + b"}"
        )
    )
)  # fmt: skip
HEADER_TEXT = st.text(
    st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=30
)
CONTENT_TYPES = st.sampled_from(
    [
        "application/json",
        "application/cloudevents+json",
        "application/cloudevents-batch+json",
        "application/cloudevents+json; charset=utf-16",
        "application/cloudevents",
        "text/plain",
        "text/plain; charset=idna",
        "application/json; charset=nonsense",
        "",
    ]
)
HEADERS = st.dictionaries(
    st.sampled_from(
        [f"ce-{name}" for name in ("specversion", "id", "source", "type", "time", "x", "Bad_Name")]
    )
    | st.sampled_from(["traceparent", "x-windsock-delivery", "idempotency-key", "content-length", "x-type"]),
    st.sampled_from(["1.0", "1", "a", "%ff", '"', "99999999999999999999999"]) | HEADER_TEXT,
)


async def deliver(requests: list[tuple[str, dict[str, str], bytes]]) -> list[httpx.Response]:
    """Send the requests, and then a good one, to a fresh server; all but the last are the poison."""
    log = SqliteLog(":memory:")
    options = {"auth": "none", "rate": 0, "max_body": 5000, "type_header": "x-type"}
    log.register(WatcherSpec(name="orders", kind="webhook", options=options), source="webhook:test")

    async def no_secret(conn_id: str) -> Secret:
        raise KeyError(conn_id)

    app = create_app(log, secrets=no_secret)
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            answers = await asyncio.gather(
                *(
                    client.post(
                        path, content=body, headers=[(k.encode(), v.encode("latin-1")) for k, v in h.items()]
                    )
                    for path, h, body in requests
                )
            )
            answers.append(await client.post("/hooks/orders", json="neighbour"))
        assert log.events(EventQuery(limit=1))[0].event.data == "neighbour"
    finally:
        await app.state.gateway.aclose()
        log.close()
    return answers


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.sampled_from(["/hooks/orders", "/events"]), CONTENT_TYPES, HEADERS, BODIES),
        min_size=1,
        max_size=6,
    )
)
def test_nothing_breaks_the_gateway(requests: list[tuple[str, str, dict[str, str], bytes]]) -> None:
    """Any headers with any body get a proper answer in JSON, and the next good request is served."""
    sent = [
        (path, headers | ({"content-type": content_type} if content_type else {}), body)
        for path, content_type, headers, body in requests
    ]
    *answers, neighbour = asyncio.run(deliver(sent))
    for answer in answers:
        assert answer.status_code in ANSWERS, answer.text
        value = json.loads(answer.content)
        assert "detail" in value or "status" in value or "events" in value
    assert neighbour.status_code == 202


@pytest.mark.parametrize("path", ["/hooks/%00", "/hooks/%ff", "/hooks/..%2f..", "/hooks/" + "x" * 5000])
async def test_strange_names_are_404(site: Any, path: str) -> None:
    """A watcher's name that cannot exist is just unknown."""
    site.watch()
    assert (await site.post(path, json=1)).status_code == 404


async def test_guessing_names_costs_little(site: Any) -> None:
    """A flood of unknown names does not become a flood of queries, nor is any of them remembered."""
    reads = []
    watchers = site.log.watchers
    site.log.watchers = lambda **filters: reads.append(1) or watchers(**filters)
    hooks = site.app.state.gateway._hooks
    hooks._clock = lambda: 0.0
    answers = await asyncio.gather(*(site.post(f"/hooks/guess-{n}", json=1) for n in range(100)))
    assert {answer.status_code for answer in answers} == {404}
    assert len(reads) == 1
    assert not hooks._ready
    assert not hooks._specs

"""What the log knows, over HTTP, for who may read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import HTTPException, Request

from unit.gateway.conftest import WatchedLog
from windsock.events import Category, DeadLetter, Event
from windsock.gateway import Secret, create_app
from windsock.log.records import Write
from windsock.spec import WatcherSpec

READER = {"Authorization": "Bearer reader"}
PATHS = (
    "/api/explain/a",
    "/api/explain?dag=fulfil",
    "/api/events",
    "/api/dead-letters",
    "/api/dead-letters/1",
    "/api/replays",
    "/api/replay/preview?watcher=orders",
)


async def no_secret(conn_id: str) -> Secret:
    """No webhook is used here."""
    raise KeyError(conn_id)


async def reader(request: Request) -> str | None:
    """Who has the reader's token may read; an expired one is refused by Airflow itself."""
    if request.headers.get("authorization") == "Bearer expired":
        raise HTTPException(403, "Invalid JWT token")
    return "ada" if request.headers.get("authorization") == READER["Authorization"] else None


@pytest.fixture
def log() -> WatchedLog:
    """Two orders, of which one was rejected, and a letter that is no text."""
    log = WatchedLog()
    log.register(WatcherSpec(name="orders", kind="memory"), source="s", asset="shop/orders")
    log.subscribe("orders", "fulfil")
    events = [Event.make({"n": n}, source="s", type="order", id=id) for n, id in enumerate(("a", "b/c"))]
    broken = DeadLetter(stage="parse", category=Category.INVALID, reason="not JSON", body=b"\xff\x00")
    log.append([Write(watcher="orders", events=events, dead=[broken])])
    _, second = log.claim(["orders"], "fulfil", "r1")
    log.dead_letter("fulfil", "r1", second.seq or 0, "bricks do not fly")
    log.settle("fulfil", "r1", ok=True)
    return log


@pytest.fixture
async def client(log: WatchedLog) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway on that log."""
    app = create_app(lambda: log, secrets=no_secret, airflow_reader=reader)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://airflow") as client:
        yield client
    await app.state.gateway.aclose()


async def ask(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    """The JSON of an answer to the reader."""
    response = await client.get(path, params=params or None, headers=READER)
    assert response.status_code == 200, response.text
    assert response.headers["cache-control"] == "no-store"
    return response.json()


@pytest.mark.parametrize("path", PATHS)
async def test_only_readers_are_let_in(client: httpx.AsyncClient, log: WatchedLog, path: str) -> None:
    """Without a token, with a stranger's or an expired one: 401; without a way to tell readers: nobody."""
    assert (await client.get(path, headers=READER)).status_code == 200
    for headers in ({}, {"Authorization": "Bearer stranger"}, {"Authorization": "Bearer expired"}):
        response = await client.get(path, headers=headers)
        assert response.status_code == 401
        assert response.json() == {"detail": "not authorised"}
    closed = create_app(lambda: log, secrets=no_secret)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(closed), base_url="http://airflow") as other:
        assert (await other.get(path, headers=READER)).status_code == 401


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_can_be_changed(client: httpx.AsyncClient, path: str) -> None:
    """Only GET is understood."""
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert (await client.request(method, path, headers=READER)).status_code == 405


async def test_explain(client: httpx.AsyncClient) -> None:
    """An event, also one with a slash in its id, and a Dag at a time."""
    way = (await ask(client, "/api/explain/a"))["ways"][0]
    assert way["next"] == "fulfil: nothing, its run succeeded"
    assert (await ask(client, "/api/explain/b/c"))["event_id"] == "b/c"
    assert (await ask(client, "/api/explain/b%2Fc", watcher="other"))["ways"] == []
    found = await ask(client, "/api/explain", dag="fulfil")
    assert found["conclusion"].startswith("it ran")
    found = await ask(client, "/api/explain", dag="fulfil", at="2020-01-01T00:00:00Z")
    assert found["conclusion"] == "no event arrived for it around then"


async def test_events(client: httpx.AsyncClient) -> None:
    """Newest first, narrowed by parameters, a page at a time."""
    assert [one["event"]["id"] for one in await ask(client, "/api/events")] == ["b/c", "a"]
    [one] = await ask(client, "/api/events", state="dead")
    assert (one["event"]["id"], one["watcher"], one["state"]) == ("b/c", "orders", "dead")
    assert len(await ask(client, "/api/events", limit="1")) == 1
    assert await ask(client, "/api/events", before="1") == []
    assert await ask(client, "/api/events", since="9000000000") == []


async def test_dead_letters(client: httpx.AsyncClient) -> None:
    """The list is without bodies; one letter is whole, in base64 if it is no text; none is 404."""
    letters = await ask(client, "/api/dead-letters")
    assert [letter["reason"] for letter in letters] == ["bricks do not fly", "not JSON"]
    assert not any("body" in letter for letter in letters)
    assert (await ask(client, f"/api/dead-letters/{letters[1]['id']}"))["body_base64"] == "/wA="
    assert "b/c" in (await ask(client, f"/api/dead-letters/{letters[0]['id']}"))["body"]
    assert len(await ask(client, "/api/dead-letters", category="rejected", state="all")) == 1
    assert (await client.get("/api/dead-letters/999", headers=READER)).status_code == 404


async def test_replay_preview(client: httpx.AsyncClient) -> None:
    """What a replay would do, by watcher and expression; none is made."""
    found = await ask(client, "/api/replay/preview", watcher="orders", where="data.n > 0")
    assert (found["events"], found["runs"]) == (1, {"fulfil": 1})
    assert await ask(client, "/api/replays") == []


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/api/explain", "name a Dag"),
        ("/api/explain?dag=d&at=noon", "no time"),
        ("/api/events?limit=many", "no number"),
        ("/api/events?state=lost", "is none of open, pending"),
        ("/api/events?before=-1", "no number"),
        ("/api/replay/preview?where=data.n%20%3E", "where"),
        ("/api/replay/preview?where=os:getcwd", "CEL expression"),
        ("/api/dead-letters?since=yesterday", "no time"),
    ],
)
async def test_a_wrong_question_is_told(client: httpx.AsyncClient, path: str, says: str) -> None:
    """422 with the reason; a function of the server's cannot be called."""
    response = await client.get(path, headers=READER)
    assert response.status_code == 422
    assert says in response.json()["detail"]


async def test_a_log_that_is_away(client: httpx.AsyncClient, log: WatchedLog) -> None:
    """503, and again when it is back."""
    log.away = True
    response = await client.get("/api/replay/preview?watcher=orders", headers=READER)
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")
    log.away = False
    assert (await client.get("/api/replay/preview?watcher=orders", headers=READER)).status_code == 200

"""The Airflow source: what it asks for, what it makes of the answers, and what it remembers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_airflow import LOGIN, PASSWORD, FakeAirflow
from windsock.connections import Connection, fixed
from windsock.events import Event, SourceError
from windsock.sources import make_source
from windsock.sources._airflow_memory import LATE, Seen
from windsock.sources.base import Cursor, Source
from windsock.testing.sources import Reader

DAY = "2026-11-15T"


@pytest.fixture
def airflow() -> Iterator[FakeAirflow]:
    """An Airflow without runs."""
    fake = FakeAirflow()
    fake.start()
    yield fake
    fake.stop()


def source(airflow: FakeAirflow, *, connection: dict[str, Any] | None = None, **options: Any) -> Source:
    """A source on it."""
    access = {"login": LOGIN, "password": PASSWORD} if connection is None else connection
    known = Connection(
        conn_id="af", conn_type="http", **{"host": "127.0.0.1", "port": airflow.port, **access}
    )
    chosen = {"conn_id": "af", "start": "earliest", "interval": 0.01, **options}
    return make_source("airflow", chosen, fixed(known))


async def read(source: Source, count: int, cursor: Cursor | None = None) -> tuple[list[Event], Cursor | None]:
    """The next events, and the cursor after them."""
    async with asyncio.timeout(30):
        try:
            await source.connect(cursor)
            reader = Reader(source)
            return await reader.read(count), reader.cursor(cursor)
        finally:
            await source.close()


def task(task_id: str, **fields: Any) -> dict[str, Any]:
    """A row of a task instance."""
    moment = f"{DAY}10:00:00.000000Z"
    return {"dag_id": "hello", "dag_run_id": "r1", "task_id": task_id, "map_index": -1, "state": "success",
            "start_date": moment, "end_date": moment, "id": task_id, **fields}  # fmt: skip


async def test_what_a_run_becomes(airflow: FakeAirflow) -> None:
    """A run that ended is named by its Dag and its run, timed by its end, and keeps every field."""
    airflow.run("r1", f"{DAY}10:00:00.250000Z", conf={"n": 1}, note="field that nobody knows")
    (event,), _ = await read(source(airflow), 1)
    assert event.type == "airflow.dag_run.success"
    assert event.source == f"airflow://127.0.0.1:{airflow.port}"
    assert (event.subject, event.key) == ("hello/r1", "hello/r1")
    assert event.id == f"dag_run/hello/r1/success/{DAY}10:00:00.250000Z"
    assert event.time is not None
    assert event.time.isoformat() == f"{DAY}10:00:00.250000+00:00"
    assert event.data == airflow.rows["dag_runs"][0]


async def test_a_cleared_run_ends_again(airflow: FakeAirflow) -> None:
    """A run that ends a second time is a new event."""
    airflow.run("r1", f"{DAY}10:00:00.000000Z", state="failed")
    (first,), cursor = await read(source(airflow), 1)
    airflow.run("r1", f"{DAY}10:05:00.000000Z")
    (second,), _ = await read(source(airflow), 1, cursor)
    assert (first.type, second.type) == ("airflow.dag_run.failed", "airflow.dag_run.success")
    assert first.id != second.id


async def test_a_row_that_becomes_visible_late(airflow: FakeAirflow) -> None:
    """A run whose end is older than what was announced, because its transaction was slow, is not missed."""
    airflow.run("r2", f"{DAY}10:00:09.000000Z")
    _, cursor = await read(source(airflow), 1)
    airflow.run("r1", f"{DAY}10:00:01.000000Z")
    (late,), _ = await read(source(airflow), 1, cursor)
    assert late.subject == "hello/r1"


async def test_latest_begins_with_what_comes(airflow: FakeAirflow) -> None:
    """Without a position only what ends from now on is read, from the same moment after a crash."""
    airflow.run("old", f"{DAY}10:00:00.000000Z")
    airflow.run("without an end", None, state="failed")
    first = source(airflow, start="latest")
    await first.connect(None)
    begun = await anext(aiter(first.read()))
    await first.close()
    assert (begun.events, begun.cursor is None) == ([], False)
    airflow.run("new", f"{DAY}10:00:01.000000Z")
    (event,), _ = await read(source(airflow, start="latest"), 1, begun.cursor)
    assert event.subject == "hello/new"


async def test_latest_of_an_airflow_without_runs(airflow: FakeAirflow) -> None:
    """Where nothing has run yet, the first run is news."""
    watching = source(airflow, start="latest")
    await watching.connect(None)
    reader = Reader(watching)
    await reader.next()
    airflow.run("first", f"{DAY}10:00:01.000000Z")
    assert [event.subject for event in await reader.read(1)] == ["hello/first"]
    await watching.close()


async def test_begins_come_before_ends(airflow: FakeAirflow) -> None:
    """With `running` a run that began and ended between two looks is two events, in this order."""
    airflow.run("r1", f"{DAY}10:00:09.000000Z", start_date=f"{DAY}10:00:01.000000Z")
    airflow.run("r2", None, state="running", start_date=f"{DAY}10:00:02.000000Z")
    airflow.run("r3", None, state="queued", start_date=None)
    airflow.run("r4", None, state="failed", start_date=None)
    events, _ = await read(source(airflow, states=["running", "success"]), 3)
    assert [(event.type, event.subject) for event in events] == [
        ("airflow.dag_run.running", "hello/r1"),
        ("airflow.dag_run.running", "hello/r2"),
        ("airflow.dag_run.success", "hello/r1"),
    ]


async def test_task_instances(airflow: FakeAirflow) -> None:
    """Task instances are announced in the states that are asked for; one that was skipped never ran."""
    airflow.rows["task_instances"] = [
        task("load"),
        task("load", map_index=3),
        task("check", state="skipped"),
        task("send", state="upstream_failed"),
        task("mail", state="up_for_retry", start_date=f"{DAY}09:59:00.000000Z"),
    ]
    states = ["running", "skipped", "up_for_retry"]
    events, _ = await read(source(airflow, events=["task_instance"], states=states), 5)
    assert sorted((event.type, event.subject) for event in events) == [
        ("airflow.task_instance.running", "hello/r1/load"),
        ("airflow.task_instance.running", "hello/r1/load/3"),
        ("airflow.task_instance.running", "hello/r1/mail"),
        ("airflow.task_instance.skipped", "hello/r1/check"),
        ("airflow.task_instance.up_for_retry", "hello/r1/mail"),
    ]


async def test_asset_events(airflow: FakeAirflow) -> None:
    """Asset events keep Airflow's id and are chosen by the asset and by the Dag that made them."""
    made = [
        ("s3://in/a", "a", "hello"),
        ("s3://in/b", "b", None),
        ("x://c", "c", "hello"),
        ("s3://in/d", "d", "x"),
    ]
    rows = [
        {"id": number, "asset_id": 1, "uri": uri, "name": name, "source_dag_id": dag, "extra": {"n": number},
         "timestamp": f"{DAY}10:00:00.00000{number}Z"}
        for number, (uri, name, dag) in enumerate(made)
    ]  # fmt: skip
    airflow.rows["asset_events"] = rows
    events, _ = await read(source(airflow, events=["asset_event"], assets=["s3://in/*"], dags=["h*"]), 1)
    assert [(e.type, e.id, e.subject, e.data["extra"]) for e in events] == [
        ("airflow.asset_event.created", "0", "s3://in/a", {"n": 0})
    ]
    everything, _ = await read(source(airflow, events=["asset_event"]), 4)
    assert [event.id for event in everything] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("dags", [["etl_*"], ["etl_a", "etl_b"], ["etl_[ab]"], ["etl_?"]])
async def test_dags_by_pattern(airflow: FakeAirflow, dags: list[str]) -> None:
    """Dags are chosen by id or glob; Airflow is asked for these, and what it gives too much is left out."""
    for number, dag in enumerate(["etl_a", "etlxa", "other", "etl_b"]):
        airflow.run(f"r{number}", f"{DAY}10:00:00.00000{number}Z", dag=dag)
    events, _ = await read(source(airflow, dags=dags), 2)
    assert [event.data["dag_id"] for event in events] == ["etl_a", "etl_b"]
    assert "dag_id_pattern" in airflow.asked[-1]


async def test_one_dag_is_asked_for_by_path(airflow: FakeAirflow) -> None:
    """A single Dag's runs are all that Airflow has to look through."""
    airflow.run("other", f"{DAY}10:00:00.000000Z", dag="other")
    airflow.run("r1", f"{DAY}10:00:01.000000Z")
    events, _ = await read(source(airflow, dags=["hello"]), 1)
    assert [event.subject for event in events] == ["hello/r1"]
    assert airflow.asked[-1].startswith("/api/v2/dags/hello/dagRuns?")


async def test_an_expired_token_is_renewed(airflow: FakeAirflow) -> None:
    """A token that Airflow no longer takes is fetched again, without an error."""
    watching = source(airflow)
    await watching.connect(None)
    airflow.token = "token-2"
    airflow.run("r1", f"{DAY}10:00:00.000000Z")
    assert len(await Reader(watching).read(1)) == 1
    await watching.close()


@pytest.mark.parametrize("connection", [{"password": "token-1"}, {"extra": {"token": "token-1"}}])
async def test_a_token_of_ones_own(airflow: FakeAirflow, connection: dict[str, Any]) -> None:
    """A token can stand in the Connection, as its password or among its extras."""
    airflow.run("r1", f"{DAY}10:00:00.000000Z")
    events, _ = await read(source(airflow, connection=connection), 1)
    assert len(events) == 1


async def test_a_whole_url_as_host(airflow: FakeAirflow) -> None:
    """The host may be a URL."""
    airflow.run("r1", f"{DAY}10:00:00.000000Z")
    url = {"host": f"http://127.0.0.1:{airflow.port}/", "port": None, "password": "token-1"}
    events, _ = await read(source(airflow, connection=url), 1)
    assert events[0].source == f"airflow://127.0.0.1:{airflow.port}"


@pytest.mark.parametrize(
    ("connection", "reason"),
    [
        ({"host": None}, "it has no host"),
        ({"host": "http://a:b"}, "check host"),
        ({"extra": {"verify": "/not/there.pem"}}, "No such file"),
        ({"extra": {"timeout": "soon"}}, "could not convert"),
    ],
)
async def test_a_connection_that_cannot_be_used(
    airflow: FakeAirflow, connection: dict[str, Any], reason: str
) -> None:
    """What is wrong with a Connection is said before anything is asked."""
    with pytest.raises(SourceError, match=reason):
        await source(airflow, connection=connection).connect(None)


@pytest.mark.parametrize(
    "answer",
    [
        (200, {"dag_runs": [{"end_date": "soon"}], "total_entries": 1}),
        (200, {"dag_runs": [{"end_date": 5e300}], "total_entries": 1}),
        (200, {"dag_runs": "none", "total_entries": 1}),
        (200, {"dag_runs": []}),
        (200, ["a list"]),
        (500, {"detail": "broken"}),
        (429, {"detail": "slow down"}),
    ],
)
async def test_answers_that_are_not_airflows(
    airflow: FakeAirflow, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, Any]
) -> None:
    """Whatever else answers at that address, or how Airflow fails, is a SourceError with the remedy."""
    monkeypatch.setattr(airflow, "answer", lambda path, query: answer)
    with pytest.raises(SourceError, match=r"(?s)\S: \S"):
        await read(source(airflow, start="latest"), 1)


async def test_a_row_that_cannot_be_an_event(airflow: FakeAirflow) -> None:
    """A run whose name is too long for an id is set aside, once, and the next one goes through."""
    airflow.run("x" * 3000, f"{DAY}10:00:00.000000Z")
    airflow.run("r1", f"{DAY}10:00:01.000000Z")
    watching = source(airflow)
    await watching.connect(None)
    reader = Reader(watching)
    await reader.read(1)
    airflow.run("r2", f"{DAY}10:00:02.000000Z")
    await reader.read(2)
    await watching.close()
    assert [event.subject for event in reader.events] == ["hello/r1", "hello/r2"]
    (dead,) = reader.dead
    assert b"xxx" in dead.body


async def test_a_quiet_airflow_is_asked_little(airflow: FakeAirflow) -> None:
    """Whatever its history, a look at an Airflow without news is one request."""
    for number in range(250):
        airflow.run(f"r{number}", f"{DAY}10:00:00.{number:06}Z")
    _, cursor = await read(source(airflow, start="latest"), 0)
    watching = source(airflow, start="latest")
    await watching.connect(cursor)
    reading = aiter(watching.read())
    await anext(reading)
    airflow.asked.clear()
    waiting = asyncio.ensure_future(anext(reading))
    while len(airflow.asked) < 3:
        await asyncio.sleep(0.005)
    assert all("offset=0" in path for path in airflow.asked)
    await watching.close()
    with pytest.raises(StopAsyncIteration):
        await waiting


def test_the_memory_stays_small() -> None:
    """After ten thousand rows of different times a few hundred are remembered, and all of them are known."""
    seen = Seen(now=0.0)
    for number in range(10_000):
        seen.add(number, f"row-{number}", now=0.0)
        seen.trim(before=number, now=0.0)
    assert len(msgspec.json.encode(seen.saved())) < 5_000
    assert all(seen.knows(number, f"row-{number}") for number in range(10_000))
    assert not seen.knows(9_999, "another row")
    assert seen.mark > 9_000


def test_the_memory_ends_when_nothing_can_be_late() -> None:
    """A minute later the latest rows are below the mark, and a look asks for these only."""
    seen = Seen(now=0.0)
    for number in range(5):
        seen.add(number, f"row-{number}", now=0.0)
    seen.trim(before=5, now=LATE / 2)
    assert seen.mark < 0
    seen.trim(before=5, now=LATE * 2)
    assert seen.mark == 4
    assert base64.b64decode(seen.saved()["rows"]) == b""


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 400)), unique=True), st.data())
def test_the_memory_misses_nothing(rows: list[tuple[int, int]], data: st.DataObject) -> None:
    """However rows share times and the reader crashes, each is news exactly once."""
    ordered = sorted(rows, key=lambda row: row[0])
    seen, news = Seen(now=0.0), []
    for time, identity in ordered:
        if not seen.knows(time, str(identity)):
            news.append((time, identity))
            seen.add(time, str(identity), now=0.0)
        seen.trim(before=time, now=0.0)
        if data.draw(st.booleans()):
            seen = Seen(msgspec.json.decode(msgspec.json.encode(seen.saved())), now=0.0)
    assert news == ordered
    assert all(seen.knows(time, str(identity)) for time, identity in rows)

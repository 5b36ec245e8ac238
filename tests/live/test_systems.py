"""Real brokers and a database, read inside a real Airflow's triggerer with Airflow's own Connections."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import nats
import psycopg
import pytest
import redis

from live.field import Field
from windsock.connections import Connection, parse_connection
from windsock.testing.services import Service
from windsock.testing.services.nats import Nats
from windsock.testing.services.redis import Redis

pytestmark = pytest.mark.live

DAGS = ("from_redis", "from_nats", "from_table")


@dataclass
class Systems:
    """The servers that the Dags read."""

    field: Field
    redis: Redis
    nats: Nats
    database: str

    def send(self, *numbers: int) -> None:
        """Put these numbers into each system."""
        server = self.redis.connection("x")
        with redis.Redis(host=server.host or "", port=server.port or 0, password=server.password) as client:
            for number in numbers:
                client.xadd("orders", {"data": json.dumps({"n": number})})
        asyncio.run(self._publish(numbers))
        with psycopg.connect(self.database) as table:
            table.cursor().executemany("INSERT INTO orders (n) VALUES (%s)", [(n,) for n in numbers])

    async def _publish(self, numbers: tuple[int, ...]) -> None:
        server = self.nats.connection("x")
        client = await nats.connect(
            f"nats://{server.host}:{server.port}", user=server.login, password=server.password
        )
        try:
            stream = client.jetstream()
            await stream.add_stream(name="ORDERS", subjects=["orders.>"])
            for number in numbers:
                await stream.publish("orders.new", json.dumps({"n": number}).encode())
        finally:
            await client.close()

    def connect(self, conn_id: str, connection: Connection) -> None:
        """Add a Connection to Airflow's database, as a person does in its user interface."""
        body = {
            "connection_id": conn_id,
            "conn_type": connection.conn_type,
            "host": connection.host,
            "port": connection.port,
            "login": connection.login,
            "password": connection.password,
            "schema": connection.schema,
            "extra": json.dumps(connection.extra),
        }
        self.field.stack.api.request("POST", "connections", json=body)


def started(stack: ExitStack, kind: type[Service], folder: Path) -> Service:
    """A server of this kind; those used here come with the test dependencies."""
    kind.install()
    return stack.enter_context(kind(folder))


@pytest.fixture(scope="module")
def systems(field: Field) -> Iterator[Systems]:
    """The servers, with no Connection to them yet."""
    with ExitStack() as stack:
        folder = field.folder / "systems"
        cache, broker = started(stack, Redis, folder), started(stack, Nats, folder)
        assert isinstance(cache, Redis)
        assert isinstance(broker, Nats)
        database = field.postgres.url("systems")
        with psycopg.connect(database) as table:
            table.execute("CREATE TABLE orders (n integer PRIMARY KEY)")
        yield Systems(field, cache, broker, database)


def test_a_missing_connection_is_shown_and_then_found(systems: Systems) -> None:
    """Watchers without their Connection say so in their health; once it is added, events arrive."""
    field = systems.field
    systems.send(*range(5))
    shutil.copy(Path(__file__).parent / "dags_systems.py", field.dags / "systems.py")
    for dag_id in DAGS:
        field.stack.wait_for(field.subscribed(dag_id), 120, f"the subscription of {dag_id}")
    field.stack.wait_for(lambda: all("is not defined" in error for error in errors(field)), 90, "the errors")
    systems.connect("systems_redis", systems.redis.connection("systems_redis"))
    systems.connect("systems_nats", systems.nats.connection("systems_nats"))
    table = parse_connection("systems_table", systems.database.replace("postgresql://", "postgres://"))
    systems.connect("systems_table", table)
    for dag_id in DAGS:
        field.stack.wait_for(has(field, dag_id, 5), 120, f"the first events of {dag_id}")


def test_events_reach_their_dags_once(systems: Systems) -> None:
    """What is sent while the Dags run arrives in successful runs, once each, in order."""
    field = systems.field
    systems.send(*range(100, 150))
    for dag_id in DAGS:
        field.stack.wait_for(has(field, dag_id, 55), 120, f"the events of {dag_id}")
        field.stack.wait_for(field.settled(dag_id), 60, f"the last run of {dag_id}")
        assert sorted(field.had(dag_id)) == [*range(5), *range(100, 150)]


def test_a_restarted_server_is_found_again(systems: Systems) -> None:
    """Servers that are killed and come back are read on, inside the same triggerer."""
    field = systems.field
    systems.redis.restart()
    systems.nats.restart()
    systems.send(*range(200, 210))
    for dag_id in DAGS:
        field.stack.wait_for(has(field, dag_id, 65), 120, f"the events of {dag_id} after the restart")
        field.stack.wait_for(field.settled(dag_id), 60, f"the last run of {dag_id}")
        assert len(field.had(dag_id)) == 65


def has(field: Field, dag_id: str, count: int) -> Callable[[], bool]:
    """A question for ``stack.wait_for``: have successful runs of the Dag had so many events?"""
    return lambda: len(field.had(dag_id)) >= count


def errors(field: Field) -> list[str]:
    """What the health of the three watchers shows."""
    return [health.error or "" for health in field.log.health() if health.watcher.startswith("systems_")]

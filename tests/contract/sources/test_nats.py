"""NATS JetStream over the contract suite, on a real server."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import nats
import nkeys
import pytest
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig

from windsock.connections import Connection, fixed
from windsock.events import SourceError
from windsock.sources import _nats_consumer, make_source
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import Service
from windsock.testing.services.nats import Nats
from windsock.testing.sources import (
    MessageContract,
    Missing,
    ReaderProcesses,
    ServerFaults,
    SourceHooks,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire


class _Hooks(SourceHooks):
    """A fresh stream on the server, and how to put messages there."""

    kind = "nats"

    @pytest.fixture(autouse=True)
    async def system(self, serve: Callable[[str], Service]) -> AsyncIterator[None]:
        self.server = cast(Nats, serve("nats"))
        self.stream = f"ORDERS-{uuid.uuid4()}"
        self.more: dict[str, Any] = {}
        with Wire(LOOPBACK, self.server.port) as self.wire:
            self.known = msgspec.structs.replace(self.server.connection("events"), port=self.wire.port)
            async with self.client() as client:
                await client.jetstream().add_stream(name=self.stream, subjects=[f"{self.stream}.>"])
            yield
            async with self.client() as client:
                await client.jetstream().delete_stream(self.stream)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        client = await nats.connect(
            f"nats://{LOOPBACK}:{self.server.port}", user="windsock", password=self.server.password
        )
        try:
            yield client
        finally:
            await client.close()

    def options(self) -> dict[str, Any]:
        return {"conn_id": "events", "stream": self.stream, "create": True, "ack_wait": 2, **self.more}

    def connections(self) -> list[Connection]:
        return [self.known]

    async def send(
        self, *bodies: bytes, subject: str = "new", headers: dict[str, str] | None = None
    ) -> list[str]:
        """Publish messages; their stream sequences."""
        sequences: list[str] = []
        async with self.client() as client:
            jetstream = client.jetstream(publish_async_max_pending=1000)
            for start in range(0, len(bodies), 500):
                answers = [
                    await jetstream.publish_async(f"{self.stream}.{subject}", body, headers=headers)
                    for body in bodies[start : start + 500]
                ]
                sequences += [str(answer.seq) for answer in await asyncio.gather(*answers)]
        return sequences

    async def produce(self, count: int) -> list[str]:
        return await self.send(*(b'{"n": %d}' % n for n in range(count)))


class TestNats(
    _Hooks, MessageContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing
):
    """A stream read through a consumer of our own."""

    async def produce_large(self, size: int) -> str:
        return (await self.send(b'"%b"' % (b"x" * size)))[0]

    async def produce_keyed(self, keys: Sequence[str]) -> list[str]:
        return await self.send(*(b'{"key": "%b"}' % key.encode() for key in keys))

    async def produce_malformed(self) -> bytes:
        await self.send(b'{"cut": ')
        return b'{"cut": '

    async def restart_server(self) -> None:
        self.server.restart()

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [msgspec.structs.replace(self.known, port=free_port())]

    def wrong_credentials(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [msgspec.structs.replace(self.known, password="not-the-password")]

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {**self.options(), "stream": "not-there"}, self.connections()

    async def test_a_consumer_is_made_only_when_asked(self) -> None:
        """Without create, a consumer that is not there is an error that says how to get one."""
        self.more = {"create": False}
        with pytest.raises(
            SourceError, match=r"consumer 'windsock' does not exist .*: make it, or set create"
        ):
            async with self.reading():
                pass

    async def test_starts_with_what_comes_from_now_on(self) -> None:
        """A consumer that is made with start='latest' leaves out what the stream held before."""
        await self.produce(3)
        self.more = {"start": "latest"}
        async with self.reading() as reader:
            produced = await self.produce(2)
            events = await reader.read(2)
        self.check(events, produced)

    async def test_starts_at_a_sequence(self) -> None:
        """A consumer that is made with a sequence begins there."""
        produced = await self.produce(5)
        self.more = {"start": "3"}
        async with self.reading() as reader:
            events = await reader.read(3)
        self.check(events, produced[2:])

    async def test_starts_at_a_time(self) -> None:
        """A consumer that is made with a time begins with what was stored from then on."""
        await self.produce(3)
        async with self.client() as client:
            last = await client.jetstream().get_msg(self.stream, seq=3)
        assert last.time is not None
        self.more = {"start": (last.time + dt.timedelta(microseconds=1)).isoformat()}
        produced = await self.produce(2)
        async with self.reading() as reader:
            events = await reader.read(2)
        self.check(events, produced)

    @pytest.mark.parametrize("several", [False, True])
    async def test_filters_by_subject(self, several: bool) -> None:
        """Only messages of the wished subjects are read, and an event's subject says which."""
        wished = [f"{self.stream}.new", f"{self.stream}.paid.*"]
        self.more = {"subject": wished if several else wished[0]}
        async with self.reading() as reader:
            expected = await self.send(b"1")
            await self.send(b"2", subject="cancelled")
            paid = await self.send(b"3", subject="paid.card")
            expected += paid if several else await self.send(b"4")
            events = await reader.read(2)
        self.check(events, expected)
        assert events[0].subject == f"{self.stream}.new"

    async def test_a_consumer_with_another_filter(self) -> None:
        """An existing consumer that filters something else is refused, not read from."""
        self.more = {"subject": f"{self.stream}.new"}
        async with self.reading():
            pass
        self.more = {"subject": f"{self.stream}.paid"}
        with pytest.raises(SourceError, match=r"filters .*: delete it, or name another"):
            async with self.reading():
                pass

    async def test_headers_and_the_message_id(self) -> None:
        """Headers come along; with message_id the sender's id is the event's."""
        self.more = {"message_id": True}
        async with self.reading() as reader:
            await self.send(b"1", headers={"Nats-Msg-Id": "order-17", "tenant": "blue"})
            plain = await self.send(b"2")
            events = await reader.read(2)
        assert [event.id for event in events] == ["order-17", *plain]
        assert events[0].headers == {"Nats-Msg-Id": "order-17", "tenant": "blue"}

    async def test_cloudevents_in_binary_mode(self) -> None:
        """Attributes in ce- headers make a CloudEvent of the body."""
        headers = {
            "ce-specversion": "1.0",
            "ce-id": "a%20b",
            "ce-source": "/shop",
            "ce-type": "order.created",
            "Content-Type": "application/json",
        }
        async with self.reading() as reader:
            await self.send(b'{"total": 12}', headers=headers)
            (event,) = await reader.read(1)
        assert (event.id, event.source, event.type, event.data) == (
            "a b",
            "/shop",
            "order.created",
            {"total": 12},
        )

    async def test_cloudevents_in_structured_mode(self) -> None:
        """A JSON object with the attributes is a CloudEvent, with or without its content type."""
        body = b'{"specversion": "1.0", "id": "1", "source": "/shop", "type": "t", "data": {"total": 12}}'
        async with self.reading() as reader:
            await self.send(body)
            await self.send(body, headers={"Content-Type": "application/cloudevents+json; charset=utf-8"})
            events = await reader.read(2)
        assert [(event.source, event.type, event.data) for event in events] == [
            ("/shop", "t", {"total": 12})
        ] * 2

    async def test_extends_the_ack_wait(self) -> None:
        """What waits long for its ack is not redelivered, because NATS is told that it is worked on."""
        self.more = {"ack_wait": 1}
        async with self.reading() as reader:
            produced = await self.produce(3)
            await reader.read(3, ack=False)
            async with self.client() as client:
                began = asyncio.get_running_loop().time()
                while asyncio.get_running_loop().time() < began + 2.5:  # longer than two ack waits
                    info = await client.jetstream().consumer_info(self.stream, "windsock")
                    assert (info.num_ack_pending, info.num_redelivered) == (3, 0)
                    await asyncio.sleep(0.1)
            produced += await self.produce(1)
            await reader.read(4, ack=False)
        self.check(reader.events, produced)

    async def test_goes_on_when_too_much_is_on_its_way(self) -> None:
        """At the consumer's limit of unacked messages it waits, and goes on with the acks."""
        self.more = {"max_ack_pending": 5}
        async with self.reading() as reader:
            produced = await self.produce(12)
            while len(reader.events) < 12:
                await reader.read(min(len(reader.events) + 5, 12), ack=False)
                for delivery in reader.deliveries:
                    await delivery.ack()
                reader.deliveries.clear()
        self.check(reader.events, produced)

    async def test_waits_for_an_old_server_to_redeliver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before NATS 2.14, what was not acked is waited for, so that it still comes first."""
        async with self.reading() as reader:
            produced = await self.produce(3)
            await reader.read(3, ack=False)
        produced += await self.produce(2)
        monkeypatch.setattr(_nats_consumer, "_RESETS_SINCE", (99, 0))
        async with self.reading() as reader:
            events = await reader.read(5)
        self.check(events, produced)

    async def test_a_consumer_that_is_deleted(self) -> None:
        """A consumer that goes away while it is read is an error, not a silent wait."""
        async with self.reading() as reader:
            waiting = asyncio.create_task(reader.next())
            async with self.client() as client:
                while not (await client.jetstream().consumer_info(self.stream, "windsock")).num_waiting:
                    await asyncio.sleep(0.01)
                await client.jetstream().delete_consumer(self.stream, "windsock")
            with pytest.raises(SourceError, match="Consumer Deleted"):
                await waiting

    async def test_a_work_queue(self) -> None:
        """On a work queue an acked message is gone, and one that was not comes again."""
        async with self.client() as client:
            config = StreamConfig(
                name=f"{self.stream}-Q", subjects=[f"{self.stream}-Q.>"], retention=RetentionPolicy.WORK_QUEUE
            )
            await client.jetstream().delete_stream(self.stream)
            self.stream = f"{self.stream}-Q"
            await client.jetstream().add_stream(config)
            produced = await self.produce(3)
            async with self.reading() as reader:
                await reader.read(3, ack=False)
            async with self.reading() as reader:
                again = await reader.read(3)
                await self._lag(reader.source, 0)
            assert (await client.jetstream().stream_info(self.stream)).state.messages == 0
        self.check(again, produced)


class TestNatsConsumerOfOthers(_Hooks):
    """A stream read through a consumer that somebody else made."""

    async def made(self, **config: Any) -> None:
        self.more = {"create": False, "consumer": "theirs"}
        async with self.client() as client:
            await client.jetstream().add_consumer(
                self.stream, ConsumerConfig(durable_name="theirs", **config)
            )

    async def test_is_used_as_it_is(self) -> None:
        """What was not acked comes again when their ack wait is over, and nothing is lost."""
        await self.made(ack_policy=AckPolicy.EXPLICIT, ack_wait=1)
        async with self.reading() as reader:
            produced = await self.produce(3)
            await reader.read(3, ack=False)
        produced += await self.produce(1)
        async with self.reading() as reader:
            events = await reader.read(4)
        assert sorted(self.identities(events)) == sorted(produced)

    @pytest.mark.parametrize("policy", [AckPolicy.ALL, AckPolicy.NONE])
    async def test_must_have_explicit_acks(self, policy: AckPolicy) -> None:
        """Another ack policy could confirm what is not stored, and is refused."""
        await self.made(ack_policy=policy)
        with pytest.raises(SourceError, match=f"has the ack policy {policy.value}"):
            async with self.reading():
                pass

    async def test_must_be_pulled(self) -> None:
        """A push consumer is refused."""
        await self.made(ack_policy=AckPolicy.EXPLICIT, deliver_subject="somewhere")
        with pytest.raises(SourceError, match="is a push consumer"):
            async with self.reading():
                pass

    async def test_that_gives_up(self, caplog: pytest.LogCaptureFixture) -> None:
        """A limit on deliveries, past which messages are lost, is warned about."""
        await self.made(ack_policy=AckPolicy.EXPLICIT, max_deliver=3)
        with caplog.at_level(logging.WARNING):
            async with self.reading():
                pass
        assert "windsock.nats.max_deliver" in caplog.text


@pytest.fixture
def start(serve: Callable[[str], Service], tmp_path: Path) -> Iterator[Callable[..., Nats]]:
    """Starts a server of the test's own."""
    serve("nats")  # says so if there is none
    started: list[Nats] = []

    def run(**configured: Any) -> Nats:
        started.append(Nats(tmp_path, **configured))
        started[-1].start()
        return started[-1]

    yield run
    for server in started:
        server.stop()


async def answer(server: Nats, extra: dict[str, Any], **fields: Any) -> str:
    """What a source says that looks for a stream which is not there."""
    known = Connection(conn_id="events", host=LOOPBACK, port=server.port, extra=extra, **fields)
    source = make_source("nats", {"conn_id": "events", "stream": "NONE"}, fixed(known))
    with pytest.raises(SourceError) as refused:
        await source.connect(None)
    return str(refused.value)


class TestNatsLogins:
    """Servers that know their users by other things than a password."""

    async def test_a_token(self, start: Callable[..., Nats]) -> None:
        """A token stands in the extra, or as the password of a Connection without a login."""
        server = start(authorization='authorization { token: "opensesame" }')
        assert "does not exist" in await answer(server, {"token": "opensesame"})
        assert "does not exist" in await answer(server, {}, password="opensesame")

    async def test_an_nkey(self, start: Callable[..., Nats], tmp_path: Path) -> None:
        """A seed stands in the extra or in a file that it names."""
        seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
        public = nkeys.from_seed(bytearray(seed)).public_key.decode()
        server = start(authorization=f"authorization {{ users: [ {{ nkey: {public} }} ] }}")
        (tmp_path / "user.nk").write_bytes(seed)
        assert "does not exist" in await answer(server, {"nkey_seed": seed.decode()})
        assert "does not exist" in await answer(server, {"nkey_seed_file": str(tmp_path / "user.nk")})

    async def test_jwt_credentials(self, start: Callable[..., Nats], tmp_path: Path) -> None:
        """Credentials of an account stand in the extra or in a file that it names."""
        operator, system, account, user = Key("O"), Key("A"), Key("A"), Key("U")
        unlimited = dict.fromkeys(("subs", "conn", "leaf", "imports", "exports", "data", "payload"), -1)
        stored = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
        trusted = operator.sign(operator, "operator", {"system_account": system.public})
        ruling = operator.sign(system, "account", {"limits": unlimited})
        member = operator.sign(account, "account", {"limits": {**unlimited, **stored}})
        server = start(
            authorization=f"operator: {trusted}\nresolver: MEMORY\n"
            f"resolver_preload: {{ {system.public}: {ruling}, {account.public}: {member} }}\n"
        )
        signed = account.sign(user, "user", {"subs": -1, "data": -1, "payload": -1})
        creds = (
            f"-----BEGIN NATS USER JWT-----\n{signed}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
        )
        (tmp_path / "user.creds").write_text(creds)
        assert "does not exist" in await answer(server, {"creds_file": str(tmp_path / "user.creds")})
        assert "does not exist" in await answer(server, {"creds": creds})
        assert "refused the login" in await answer(server, {})


class Key:
    """A key of NATS's decentralised authentication: of an operator, an account or a user."""

    def __init__(self, kind: str) -> None:
        prefixes = {
            "O": nkeys.PREFIX_BYTE_OPERATOR,
            "A": nkeys.PREFIX_BYTE_ACCOUNT,
            "U": nkeys.PREFIX_BYTE_USER,
        }
        self.seed = nkeys.encode_seed(os.urandom(32), prefixes[kind])
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public = self._pair.public_key.decode()

    def sign(self, subject: Key, kind: str, claims: dict[str, Any]) -> str:
        """A token in which this key vouches for another."""
        body = {
            "iss": self.public,
            "sub": subject.public,
            "iat": 1_700_000_000,
            "jti": str(uuid.uuid4()),
            "name": kind,
            "nats": {"type": kind, "version": 2, **claims},
        }
        parts = [_base64(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body)]
        return ".".join([*parts, _base64(self._pair.sign(".".join(parts).encode()))])


def _base64(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


class TestNatsTls:
    """A server that speaks TLS and asks for a certificate."""

    async def test_tls_with_a_client_certificate(self, start: Callable[..., Nats]) -> None:
        """The server is checked against the authority that the Connection names, and we show ours."""
        server = start(tls=True)
        files = server.certificates
        extra = {
            "tls": True,
            "tls_ca_file": str(files.authority),
            "tls_cert_file": str(files.client),
            "tls_key_file": str(files.client_key),
        }
        login = {"login": "windsock", "password": server.password}
        assert "does not exist" in await answer(server, extra, **login)
        unchecked = {**extra, "tls_ca_file": "", "tls_verify": "false"}
        assert "does not exist" in await answer(server, unchecked, **login)
        assert "certificate verify failed" in await answer(server, {**extra, "tls_ca_file": ""}, **login)

    async def test_files_that_are_not_there(self, start: Callable[..., Nats]) -> None:
        """A wrong path in the extras is an error that names them."""
        told = await answer(start(tls=True), {"tls": True, "tls_ca_file": "/not/there.pem"})
        assert "correct 'tls_ca_file'" in told

    async def test_a_server_without_tls(self, start: Callable[..., Nats]) -> None:
        """A password is not sent to a server that does not require the TLS which the Connection asks for."""
        told = await answer(start(), {"tls": "true"}, login="windsock", password="secret")
        assert "does not require TLS" in told

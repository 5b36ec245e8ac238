"""A peer that speaks Service Bus's part of AMQP 1.0: ``python -m windsock.testing.services.servicebus_peer``.

Arguments: the port, the directory of its data, the name and the key of the shared access policy. It is not
Azure, and has no more than the client library asks of Azure when it reads:

* ``$cbs``: a token is taken if its signature is the policy's; without one no link opens.
* Queues, topics and their subscriptions as ``entities.json`` lists them; ``<entity>/$deadletterqueue``.
* Peek-lock: complete, abandon, release and dead-letter; a lock that expires gives the message back; messages
  that were delivered too often go to the dead-letter queue.
* Sessions: one by name, or the next one that is free, which is waited for.
* ``<entity>/$management``: renew locks of messages and of sessions, peek.

Messages are on disk and survive a kill; locks are not and do not.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from proton import (
    Array,
    Condition,
    Data,
    Delivery,
    Handler,
    Link,
    Message,
    Terminus,
    symbol,
    timestamp,
    ulong,
)
from proton.reactor import Container

from windsock.testing.processes import LOOPBACK

_DEAD = "/$deadletterqueue"
_MANAGEMENT = "/$management"
_VENDOR = "com.microsoft:"
_SESSION = symbol(f"{_VENDOR}session-filter")
_DATA, _SECTIONS = 0x75, b"\x00\x53"
_EPOCH = 621_355_968_000_000_000
"""Ticks of 100 ns from the year 1 to 1970, from which Azure counts the lock of a session."""
_TICK = 0.1
_LOCK = 30.0
_MAX_DELIVERIES = 10


@dataclass(eq=False)
class Stored:
    """A message in a queue."""

    row: int
    """Its sequence number, and its row on disk."""
    raw: bytes
    session: str | None
    enqueued: float
    deliveries: int = 0
    token: uuid.UUID | None = None
    """The lock; None if it is free."""
    until: float = 0.0


@dataclass(eq=False)
class Entity:
    """A queue, a subscription, or the dead-letter queue of one."""

    name: str
    lock: float
    sessions: bool
    messages: dict[int, Stored] = field(default_factory=dict)
    locks: dict[uuid.UUID, Stored] = field(default_factory=dict)
    held: dict[str, tuple[Link, float]] = field(default_factory=dict)
    """Session → the link that has it, and until when."""
    readers: dict[Link, str | None] = field(default_factory=dict)
    """Link → the session it reads."""
    waiting: dict[Link, float] = field(default_factory=dict)
    """Links that want the next free session, and until when they wait."""

    def free(self, session: str | None) -> Iterator[Stored]:
        """Messages that nobody holds, of one session if there are sessions."""
        for stored in self.messages.values():
            if stored.token is None and (not self.sessions or stored.session == session):
                yield stored

    def next_session(self) -> str | None:
        """The first session with a message that nobody has locked."""
        for stored in self.messages.values():
            if stored.token is None and stored.session is not None and stored.session not in self.held:
                return stored.session
        return None


class Store:
    """What survives: the messages, in SQLite."""

    def __init__(self, directory: Path) -> None:
        self._known = directory / "entities.json"
        self._rows = sqlite3.connect(directory / "messages.db", isolation_level=None)
        self._rows.execute("PRAGMA journal_mode = WAL")
        self._rows.execute("PRAGMA synchronous = OFF")
        self._rows.execute(
            "CREATE TABLE IF NOT EXISTS message (seq INTEGER PRIMARY KEY AUTOINCREMENT, entity TEXT, "
            "raw BLOB, session TEXT, enqueued REAL)"
        )
        self.entities: dict[str, Entity] = {}

    def settings(self) -> dict[str, dict[str, Any]]:
        """The entities that exist, by name."""
        known: dict[str, dict[str, Any]] = json.loads(self._known.read_text()) if self._known.exists() else {}
        return known

    def entity(self, name: str) -> Entity | None:
        """The queue or subscription of a name, with its messages."""
        name = name.strip("/").lower()
        if name in self.entities:
            return self.entities[name]
        base = name.removesuffix(_DEAD)
        settings = {known.lower(): fields for known, fields in self.settings().items()}.get(base)
        if settings is None or settings.get("topic"):
            return None
        sessions = bool(settings.get("sessions")) and base == name
        entity = self.entities[name] = Entity(name, float(settings.get("lock", _LOCK)), sessions)
        found = self._rows.execute(
            "SELECT seq, raw, session, enqueued FROM message WHERE entity = ? ORDER BY seq", (name,)
        )
        entity.messages = {row[0]: Stored(*row) for row in found}
        return entity

    def targets(self, name: str) -> list[Entity] | None:
        """Where a message to this name goes: the queue, or the subscriptions of a topic."""
        name = name.strip("/").lower()
        known = {entity.lower(): fields for entity, fields in self.settings().items()}
        if not known.get(name, {}).get("topic"):
            queue = self.entity(name)
            return [queue] if queue else None
        names = [entity for entity in known if entity.startswith(f"{name}/subscriptions/")]
        return [entity for entity in map(self.entity, names) if entity]

    def add(self, entity: Entity, raw: bytes, session: str | None) -> None:
        """Put a message at the end of a queue."""
        now = time.time()
        row = self._rows.execute(
            "INSERT INTO message (entity, raw, session, enqueued) VALUES (?, ?, ?, ?)",
            (entity.name, raw, session, now),
        ).lastrowid
        assert row is not None
        entity.messages[row] = Stored(row, raw, session, now)

    def remove(self, entity: Entity, stored: Stored) -> None:
        """Take a message out of its queue for good."""
        self.unlock(entity, stored)
        if entity.messages.pop(stored.row, None):
            self._rows.execute("DELETE FROM message WHERE seq = ?", (stored.row,))

    def unlock(self, entity: Entity, stored: Stored) -> None:
        """Give a message back to its queue."""
        if stored.token is not None:
            entity.locks.pop(stored.token, None)
            stored.token = None

    def bury(self, entity: Entity, stored: Stored, reason: str, description: str) -> None:
        """Move a message to the dead-letter queue."""
        message = Message()
        message.decode(stored.raw)
        message.properties = {
            **(message.properties or {}),
            "DeadLetterReason": reason,
            "DeadLetterErrorDescription": description,
        }
        dead = self.entity(entity.name.removesuffix(_DEAD) + _DEAD)
        assert dead is not None
        self.remove(entity, stored)
        self.add(dead, message.encode(), None)


class Peer(Handler):  # type: ignore[misc]
    """Answers the events of AMQP; see the module's docstring."""

    def __init__(self, port: int, directory: Path, policy: str, key: str) -> None:
        super().__init__()
        self._port, self._policy, self._key = port, policy, key
        self._store = Store(directory)
        self._trusted: set[Any] = set()

    def on_reactor_init(self, event: Any) -> None:
        event.container.listen(f"{LOOPBACK}:{self._port}")
        event.container.schedule(_TICK, self)

    def on_timer_task(self, event: Any) -> None:
        """Locks expire, and so do those who wait for a session."""
        now = time.time()
        for entity in self._store.entities.values():
            for stored in [each for each in entity.locks.values() if each.until <= now]:
                self._failed(entity, stored)
            for session, (link, until) in list(entity.held.items()):
                if until <= now:
                    self._leave(entity, link)
                    self._refuse(
                        link, f"{_VENDOR}session-lock-lost", f"The session lock on {session} expired."
                    )
            for link in [each for each, until in entity.waiting.items() if until <= now]:
                del entity.waiting[link]
                self._refuse(link, f"{_VENDOR}timeout", "No session was free in time.")
            self._pump(entity)
        event.container.schedule(_TICK, self)

    def on_connection_remote_open(self, event: Any) -> None:
        event.connection.container = "servicebus-peer"
        event.connection.open()

    def on_session_remote_open(self, event: Any) -> None:
        event.session.open()

    def on_session_remote_close(self, event: Any) -> None:
        event.session.close()

    def on_connection_remote_close(self, event: Any) -> None:
        event.connection.close()

    def on_transport_closed(self, event: Any) -> None:
        self._trusted.discard(event.connection)
        for entity in self._store.entities.values():
            for link in [*entity.readers, *entity.waiting]:
                if link.connection == event.connection:
                    self._leave(entity, link)
            self._pump(entity)

    def on_link_remote_open(self, event: Any) -> None:
        link: Link = event.link
        address = _address(link)
        link.snd_settle_mode, link.rcv_settle_mode = link.remote_snd_settle_mode, link.remote_rcv_settle_mode
        if address != "$cbs" and event.connection not in self._trusted:
            self._refuse(link, "amqp:unauthorized-access", "Unauthorized access: a claim is required.")
        elif address == "$cbs" or address.endswith(_MANAGEMENT):
            self._open(link)
        elif link.is_receiver:
            if self._store.targets(address) is None:
                self._refuse(link, "amqp:not-found", f"The messaging entity '{address}' could not be found.")
            else:
                self._open(link)
        else:
            self._read_from(link, address)

    def on_link_remote_close(self, event: Any) -> None:
        for entity in self._store.entities.values():
            self._leave(entity, event.link)
            self._pump(entity)
        event.link.close()

    on_link_remote_detach = on_link_remote_close

    def on_link_flow(self, event: Any) -> None:
        entity = self._store.entity(_address(event.link)) if event.link.is_sender else None
        if entity is not None:
            self._pump(entity)
            if event.link.drain_mode:
                event.link.drained()

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        if link.is_receiver:
            if delivery.readable and not delivery.partial:
                raw = link.recv(delivery.pending)
                link.advance()
                delivery.update(Delivery.ACCEPTED)
                delivery.settle()
                link.flow(1)
                self._received(link, bytes(raw))
        elif delivery.updated and delivery.remote_state:
            self._settled(delivery, link)

    def _open(self, link: Link, session: str | None = None) -> None:
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        if session is not None:
            link.source.filter.clear()
            link.source.filter.put_object({_SESSION: session})
        link.open()
        if link.is_receiver:
            link.flow(1000)

    def _refuse(self, link: Link, condition: str, description: str) -> None:
        """Open a link, without a source or a target, only to close it with the reason, as AMQP wants it."""
        link.source.type = link.target.type = Terminus.UNSPECIFIED
        link.open()
        link.condition = Condition(condition, description)
        link.close()

    def _read_from(self, link: Link, address: str) -> None:
        entity = self._store.entity(address)
        if entity is None:
            self._refuse(link, "amqp:not-found", f"The messaging entity '{address}' could not be found.")
            return
        wished = _filter(link)
        if (wished is not None) != entity.sessions:
            needs = "requires sessions" if entity.sessions else "has no sessions"
            self._refuse(link, "amqp:not-allowed", f"The messaging entity '{address}' {needs}.")
        elif wished is None:
            entity.readers[link] = None
            self._open(link)
        elif session := wished.get(_SESSION):
            if session in entity.held:
                self._refuse(link, f"{_VENDOR}session-cannot-be-locked", f"Session '{session}' is locked.")
            else:
                self._accept(entity, link, session)
        else:
            patience = (link.remote_properties or {}).get(symbol(f"{_VENDOR}timeout"), 65_000)
            entity.waiting[link] = time.time() + int(patience) / 1000
        self._pump(entity)

    def _accept(self, entity: Entity, link: Link, session: str) -> None:
        """Give a session to a link."""
        until = time.time() + entity.lock
        entity.held[session] = (link, until)
        entity.readers[link] = session
        link.properties = {symbol(f"{_VENDOR}locked-until-utc"): int(until * 10_000_000) + _EPOCH}
        self._open(link, session)

    def _leave(self, entity: Entity, link: Link) -> None:
        """A link is gone: a session and its messages are free again, other messages stay locked."""
        entity.waiting.pop(link, None)
        session = entity.readers.pop(link, None)
        if session is not None:
            entity.held.pop(session, None)
            for stored in [each for each in entity.locks.values() if each.session == session]:
                self._failed(entity, stored)

    def _failed(self, entity: Entity, stored: Stored) -> None:
        """A delivery came to nothing."""
        self._store.unlock(entity, stored)
        if stored.deliveries >= _MAX_DELIVERIES and not entity.name.endswith(_DEAD):
            self._store.bury(entity, stored, "MaxDeliveryCountExceeded", "Message could not be consumed.")

    def _pump(self, entity: Entity) -> None:
        """Hand sessions to those who wait, and messages to those who have credit."""
        for link in list(entity.waiting):
            session = entity.next_session()
            if session is None:
                break
            del entity.waiting[link]
            self._accept(entity, link, session)
        for link, session in entity.readers.items():
            if link.credit <= 0:
                continue
            for stored in entity.free(session):
                self._send(entity, link, stored)
                if link.credit <= 0:
                    break

    def _send(self, entity: Entity, link: Link, stored: Stored) -> None:
        tag = secrets.token_hex(8)  # proton reads a tag back as text only
        stored.token, stored.until = uuid.UUID(bytes_le=tag.encode()), time.time() + entity.lock
        if entity.sessions:
            stored.until = float("inf")  # the session's lock is theirs
        entity.locks[stored.token] = stored
        message = _outgoing(entity, stored)
        stored.deliveries += 1
        link.delivery(tag)
        link.stream(message.encode())
        link.advance()

    def _settled(self, delivery: Any, link: Link) -> None:
        """What a reader decided about a message; the answer says whether it still could."""
        entity = self._store.entity(_address(link))
        if entity is None:
            delivery.settle()
            return
        outcome = delivery.remote_state
        stored = entity.locks.get(uuid.UUID(bytes_le=delivery.tag.encode()))
        if stored is None:
            delivery.local.condition = Condition(
                f"{_VENDOR}message-lock-lost", "The lock supplied is invalid."
            )
            outcome = Delivery.REJECTED
        elif outcome == Delivery.ACCEPTED:
            self._store.remove(entity, stored)
        elif outcome == Delivery.REJECTED:
            why = delivery.remote.condition
            info = {str(name): value for name, value in ((why and why.info) or {}).items()}
            self._store.bury(
                entity,
                stored,
                info.get("DeadLetterReason") or "",
                info.get("DeadLetterErrorDescription") or "",
            )
        elif outcome == Delivery.RELEASED:
            stored.deliveries -= 1
            self._store.unlock(entity, stored)
        else:
            self._failed(entity, stored)
        delivery.update(outcome)
        delivery.settle()
        self._pump(entity)

    def _received(self, link: Link, raw: bytes) -> None:
        address = _address(link)
        if address == "$cbs" or address.endswith(_MANAGEMENT):
            self._answer(link, address, raw)
            return
        targets = self._store.targets(address) or []
        for each in _unpacked(raw):
            message = Message()
            message.decode(each)
            for entity in targets:
                self._store.add(entity, each, message.group_id)
        for entity in targets:
            self._pump(entity)

    def _answer(self, link: Link, address: str, raw: bytes) -> None:
        request = Message()
        request.decode(raw)
        operation = str((request.properties or {}).get("operation", "")).removeprefix(_VENDOR)
        if address == "$cbs":
            known = self._signed(str(request.body))
            if known:
                self._trusted.add(link.connection)
            status, body = (202, None) if known else (401, None)
            names = ("status-code", "status-description")
        else:
            entity = self._store.entity(address.removesuffix(_MANAGEMENT))
            answers: dict[str, Callable[[Entity, dict[str, Any]], tuple[int, Any]]] = {
                "renew-lock": self._renew,
                "renew-session-lock": self._renew_session,
                "peek-message": self._peek,
            }
            act = answers.get(operation)
            status, body = (
                act(entity, request.body) if entity is not None and act is not None else (501, None)
            )
            names = ("statusCode", "statusDescription")
        answer = Message(body=body, correlation_id=request.id)
        answer.properties = {names[0]: status, names[1]: "OK" if status < 300 else f"refused: {operation}"}
        if status == 410:
            lost = "session-lock-lost" if "session" in operation else "message-lock-lost"
            answer.properties["errorCondition"] = symbol(_VENDOR + lost)
        for each in _links(link):
            if each.is_sender and _address(each) == address:
                each.send(answer)

    def _signed(self, token: str) -> bool:
        """Whether a shared access signature is the policy's and not yet over."""
        fields = dict(parse_qsl(token.removeprefix("SharedAccessSignature ")))
        resource = next((p[3:] for p in token.split(" ", 1)[-1].split("&") if p.startswith("sr=")), "")
        signed = f"{resource}\n{fields.get('se')}".encode()
        wanted = base64.b64encode(hmac.new(self._key.encode(), signed, hashlib.sha256).digest()).decode()
        return (
            fields.get("skn") == self._policy
            and hmac.compare_digest(fields.get("sig", ""), wanted)
            and float(fields.get("se") or 0) > time.time()
        )

    def _renew(self, entity: Entity, body: dict[str, Any]) -> tuple[int, Any]:
        locked = [entity.locks.get(token) for token in body["lock-tokens"].elements]
        until = time.time() + entity.lock
        for stored in locked:
            if stored is None:
                return 410, None
            stored.until = until
        expirations = [timestamp(int(until * 1000)) for _ in locked]
        return 200, {"expirations": Array(None, Data.TIMESTAMP, *expirations)}

    def _renew_session(self, entity: Entity, body: dict[str, Any]) -> tuple[int, Any]:
        session = str(body["session-id"])
        if session not in entity.held:
            return 410, None
        until = time.time() + entity.lock
        entity.held[session] = (entity.held[session][0], until)
        return 200, {"expiration": timestamp(int(until * 1000))}

    def _peek(self, entity: Entity, body: dict[str, Any]) -> tuple[int, Any]:
        first, count = int(body["from-sequence-number"]), int(body["message-count"])
        session = body.get("session-id")
        found = [
            {"message": _outgoing(entity, stored).encode()}
            for stored in entity.messages.values()
            if stored.row >= first and session in (None, stored.session)
        ]
        return (200, {"messages": found[:count]}) if found else (204, None)


def _address(link: Link) -> str:
    """The entity that a link is about, by name."""
    terminus = link.remote_source if link.is_sender else link.remote_target
    address = terminus.address or ""
    return unquote(urlsplit(address).path if "://" in address else address).strip("/")


def _filter(link: Link) -> dict[Any, Any] | None:
    """The session filter of a reader, if it has one."""
    wished = link.remote_source.filter
    wished.rewind()
    found = wished.get_object() if wished.next() else None
    return found if isinstance(found, dict) and _SESSION in found else None


def _links(link: Link) -> Iterator[Link]:
    """All the links of the same connection."""
    each = link.connection.link_head(0)
    while each is not None:
        yield each
        each = each.next(0)


def _outgoing(entity: Entity, stored: Stored) -> Message:
    """A message with what the broker says about it."""
    message = Message()
    message.decode(stored.raw)
    message.delivery_count = stored.deliveries
    until = 0.0 if stored.until == float("inf") else stored.until
    message.annotations = {
        **(message.annotations or {}),
        symbol("x-opt-sequence-number"): stored.row,
        symbol("x-opt-enqueued-time"): timestamp(int(stored.enqueued * 1000)),
        symbol("x-opt-locked-until"): timestamp(int(until * 1000)),
    }
    if entity.name.endswith(_DEAD):
        message.annotations[symbol("x-opt-deadletter-source")] = entity.name.removesuffix(_DEAD)
    return message


def _unpacked(raw: bytes) -> list[bytes]:
    """The messages of a transfer: itself, or what Service Bus's batches hold in their data sections."""
    inner: list[bytes] = []
    rest = raw
    while rest:
        data = Data()
        used = data.decode(rest)
        data.next()
        section = data.get_object()
        if section.descriptor == ulong(_DATA):
            inner.append(bytes(section.value))
        rest = rest[used:]
    return inner if inner and all(each.startswith(_SECTIONS) for each in inner) else [raw]


if __name__ == "__main__":
    port, directory, policy, key = sys.argv[1:]
    Container(Peer(int(port), Path(directory), policy, key)).run()

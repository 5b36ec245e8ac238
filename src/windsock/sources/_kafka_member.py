"""One member of a consumer group: it polls in a thread of its own and hands over batches to the event loop.

No other thread touches the consumer: the client lets one caller in at a time, and a commit would wait
for the end of the poll. So acks and questions are left for the thread, which sees to them between two polls.

The thread is also what keeps the membership alive. While nobody takes the batches (the log is behind) it
pauses its partitions and polls on, so that neither ``max.poll.interval.ms`` runs out nor a rebalance of the
group has to wait for us.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from windsock.events import SourceError
from windsock.sources._ending import Ending
from windsock.sources._kafka_places import Mark, Place, Places
from windsock.sources._kafka_settings import translated
from windsock.sources.base import MAX_DELIVERY

__all__ = ["Batch", "Member", "Subscription"]

logger = logging.getLogger("windsock.sources.kafka")

T = TypeVar("T")

_POLL = 1.0
"""Seconds that one poll waits when nothing comes; how soon an ack, or that it is to stop, is noticed."""
_PATIENCE = 1.0
"""Seconds for which a batch may wait to be taken before the partitions are paused."""
_CONNECT = 10.0
"""Seconds within which the brokers must have answered."""
_LEAVE = 5.0
"""Seconds that leaving the group may take; after that the broker finds out by itself."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What to read, and where a group that never read it begins."""

    topics: tuple[str, ...]
    pattern: str | None
    start: str | int
    """'earliest', 'latest', or milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """What was made of some messages, and the offsets behind them."""

    content: T
    marks: Sequence[Mark]


class Member(Generic[T]):
    """A consumer and its thread; ``make`` turns messages into a batch's content, in that thread."""

    def __init__(
        self,
        settings: dict[str, Any],
        subscription: Subscription,
        make: Callable[[list[Any]], T],
        *,
        conn_id: str,
    ) -> None:
        self._settings = settings
        self._subscription = subscription
        self._make = make
        self._conn_id = conn_id
        self._loop = asyncio.get_running_loop()
        self._batches: asyncio.Queue[Batch[T]] = asyncio.Queue(1)
        self._ending = Ending()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._gone = asyncio.Event()
        self._stop = threading.Event()
        self._places = Places()
        self._early: list[Any] = []
        self._questions: queue.SimpleQueue[asyncio.Future[dict[str, int]]] = queue.SimpleQueue()
        self._error: Any = None
        self._detail = ""
        self._paused = False
        self._consumer: Any = None
        self._thread = threading.Thread(target=self._run, name="windsock-kafka", daemon=True)

    async def join(self) -> None:
        """Reach the brokers, see that the topics are there, and start to read."""
        self._thread.start()
        await self._ready

    async def next(self) -> Batch[T]:
        """The next batch; raises Ended after ``leave``, and what went wrong."""
        return await self._ending.first(self._batches.get())

    async def leave(self) -> None:
        """Commit what was acked and leave the group."""
        self._ending.end()
        self._stop.set()
        if self._thread.ident is None:
            return
        try:
            async with asyncio.timeout(_LEAVE):
                await self._gone.wait()
        except TimeoutError:
            logger.warning("windsock.kafka.left_late servers=%s", self._settings["bootstrap.servers"])

    async def lag(self) -> dict[str, int]:
        """How much waits in each partition that is ours."""
        if self._gone.is_set() or self._thread.ident is None:
            return {}
        question: asyncio.Future[dict[str, int]] = self._loop.create_future()
        self._questions.put(question)
        return await question

    # ── in the thread ────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            self._open()
            self._tell(self._joined)
            while not self._stop.is_set():
                self._read_once()
                self._see_to_the_rest()
        except:  # noqa: E722 - the binding also raises KafkaError, which is no exception to Python
            error = sys.exc_info()[1]
            failed = error if isinstance(error, Exception) else self._translated(error)
            self._tell(self._failed, failed)
        finally:
            self._close()
            self._tell(self._over)

    def _open(self) -> None:
        from confluent_kafka import Consumer, KafkaException

        try:
            self._consumer = Consumer(
                {**self._settings, "error_cb": self._on_error, "on_commit": self._on_commit}, logger=logger
            )
        except KafkaException as error:
            raise self._translated(error.args[0]) from error
        except (TypeError, ValueError) as error:
            raise SourceError(
                f"Kafka connection {self._conn_id!r} cannot be used: {error}; correct its extras"
            ) from error
        with self._speaking():
            found = self._find_topics()
            if self._subscription.start != "earliest":
                self._take_position(found)
        pattern = self._subscription.pattern
        self._consumer.subscribe(
            [f"^({pattern})$"] if pattern else list(self._subscription.topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _find_topics(self) -> dict[str, list[int]]:
        """The partitions of each topic that is to be read; raises if one of those named is not there."""
        pattern = self._subscription.pattern
        if pattern is not None:
            known = self._metadata(None).topics
            return {name: list(topic.partitions) for name, topic in known.items()
                    if re.fullmatch(pattern, name)}  # fmt: skip
        found = {}
        for name in self._subscription.topics:
            topic = self._metadata(name).topics[name]
            if topic.error is not None:
                raise self._translated(topic.error, detail=f"topic {name!r}")
            found[name] = list(topic.partitions)
        return found

    def _metadata(self, topic: str | None) -> Any:
        """What the cluster says about one topic or all; raises as soon as it is clear that it cannot."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + _CONNECT
        while True:
            try:
                return self._consumer.list_topics(*([topic] if topic else []), timeout=1.0)
            except KafkaException as error:
                self._consumer.poll(0)  # lets the errors of the connection through
                self._check()
                if self._stop.is_set() or time.monotonic() > deadline:
                    raise self._translated(error.args[0]) from error

    def _take_position(self, found: dict[str, list[int]]) -> None:
        """Commit the start of what the group never read, so that it stays where it was when it began.

        A partition or a topic that is added later is then read from its beginning, whatever the start.
        """
        from confluent_kafka import KafkaException, TopicPartition

        partitions = [TopicPartition(topic, number) for topic, numbers in found.items() for number in numbers]
        if not partitions:
            return
        begun = {p.topic for p in self._consumer.committed(partitions, timeout=_CONNECT) if p.offset >= 0}
        if self._subscription.pattern is not None and begun:
            return
        start = -1 if self._subscription.start == "latest" else self._subscription.start
        new = [TopicPartition(p.topic, p.partition, start) for p in partitions if p.topic not in begun]
        if not new:
            return
        firsts = self._consumer.offsets_for_times(new, timeout=_CONNECT)
        if later := [TopicPartition(p.topic, p.partition, -1) for p in firsts if p.offset < 0]:
            firsts = [p for p in firsts if p.offset >= 0]
            firsts += self._consumer.offsets_for_times(later, timeout=_CONNECT)
        try:
            self._consumer.commit(offsets=firsts, asynchronous=False)
        except KafkaException as error:
            # Only members may commit once the group has some: another reader has begun already.
            logger.info("windsock.kafka.group_is_active: %s", error.args[0].str())

    def _read_once(self) -> None:
        found = self._poll()
        self._check()
        messages, marks = self._places.taken(found, self._refuse)
        if messages:
            self._hand_over(Batch(self._make(messages), marks))

    def _refuse(self, message: Any) -> None:
        raise self._translated(message.error(), detail=f"topic {message.topic()!r}")

    def _poll(self) -> list[Any]:
        """The next messages as soon as there is one; the end of a partition counts as one."""
        if self._early:
            messages, self._early = self._early[:MAX_DELIVERY], self._early[MAX_DELIVERY:]
            return messages
        messages = self._consume(1, _POLL)
        if messages:
            messages += self._consume(MAX_DELIVERY - 1, 0)
        return messages

    def _consume(self, count: int, timeout: float) -> list[Any]:
        with self._speaking():
            messages: list[Any] = self._consumer.consume(count, timeout)
            return messages

    def _see_to_the_rest(self) -> None:
        """Commit what was acked and answer what was asked."""
        if dirty := [place for place in self._places.all() if place.dirty]:
            self._commit(dirty, asynchronous=True)
        if questions := self._asked():
            self._tell(self._answer, questions, self._lags())

    def _asked(self) -> list[asyncio.Future[dict[str, int]]]:
        return [self._questions.get() for _ in range(self._questions.qsize())]

    def _commit(self, places: Sequence[Place], *, asynchronous: bool) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        for place in places:
            place.dirty = False  # before the offset is read: an ack in between makes it dirty again
        offsets = [TopicPartition(place.topic, place.partition, place.acked) for place in places]
        if offsets and self._error is None:
            with contextlib.suppress(KafkaException):  # what is not committed comes again
                self._consumer.commit(offsets=offsets, asynchronous=asynchronous)

    def _lags(self) -> dict[str, int]:
        from confluent_kafka import OFFSET_END, TopicPartition

        places = self._places.all()
        partitions = [TopicPartition(place.topic, place.partition, OFFSET_END) for place in places]
        try:
            if self._paused:  # no fetch tells us
                ends = [p.offset for p in self._consumer.offsets_for_times(partitions, timeout=_CONNECT)]
            else:
                ends = [self._consumer.get_watermark_offsets(p, cached=True)[1] for p in partitions]
        except:  # noqa: E722 - also KafkaError, which is no exception to Python; the next poll says why
            return {}
        return {f"{p.topic}/{p.partition}": p.lag(end) for p, end in zip(places, ends, strict=True)}

    def _hand_over(self, batch: Batch[T]) -> None:
        waiting = asyncio.run_coroutine_threadsafe(self._batches.put(batch), self._loop)
        try:
            waiting.result(_PATIENCE)
        except TimeoutError:
            self._stand_still(waiting)

    def _stand_still(self, waiting: Any) -> None:
        """Poll without reading until the batch is taken."""
        self._paused = True
        try:
            while not waiting.done() and not self._stop.is_set():
                with self._speaking():
                    self._consumer.pause(self._consumer.assignment())
                self._early += self._consume(MAX_DELIVERY, _POLL)
                self._check()
                self._see_to_the_rest()
        finally:
            self._paused = False
            waiting.cancel()
        with self._speaking():
            self._consumer.resume(self._consumer.assignment())

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        found = self._patiently(lambda: consumer.committed(partitions, timeout=_CONNECT))
        if new := [TopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in found if p.offset < 0]:
            firsts = self._patiently(lambda: consumer.offsets_for_times(new, timeout=_CONNECT))
            found = [p for p in found if p.offset >= 0] + firsts
        self._places.assigned(found)
        logger.debug("windsock.kafka.assigned partitions=%d", len(partitions))

    def _patiently(self, ask: Callable[[], list[Any]]) -> list[Any]:
        """What the cluster answers, asked again while it is moving: a leader is just being elected."""
        deadline = time.monotonic() + _CONNECT
        while True:
            try:
                return ask()
            except:  # noqa: E722 - the binding also raises KafkaError, which is no exception to Python
                error: Any = sys.exc_info()[1]
                if self._stop.is_set() or time.monotonic() > deadline:
                    raise self._translated(error.args[0] if isinstance(error, Exception) else error) from None
            time.sleep(0.1)

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        lost = self._places.revoked(partitions)
        self._commit([place for place in lost if place.dirty], asynchronous=False)
        logger.debug("windsock.kafka.revoked partitions=%d", len(partitions))

    def _on_lost(self, consumer: Any, partitions: list[Any]) -> None:
        """They are somebody else's already: there is nothing left to commit."""
        self._places.revoked(partitions)
        logger.warning("windsock.kafka.lost partitions=%d: the group went on without us", len(partitions))

    def _on_error(self, error: Any) -> None:
        if error.fatal() or error.name() in ("_AUTHENTICATION", "_SSL"):
            self._error = error
        elif error.name() == "_ALL_BROKERS_DOWN":
            self._error = self._error or error  # the others say why
        else:
            self._detail = error.str()

    def _on_commit(self, error: Any, partitions: list[Any]) -> None:
        if error is not None:
            logger.info("windsock.kafka.commit_refused: %s; what it was for comes again", error.str())

    def _check(self) -> None:
        if self._error is not None:
            raise self._translated(self._error, detail=self._detail)

    def _close(self) -> None:
        if self._consumer is None:
            return
        from confluent_kafka import KafkaException

        # Also what was sent without waiting for the answer.
        acked = [place for place in self._places.all() if place.acked > place.began]
        self._commit(acked, asynchronous=False)
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()

    @contextlib.contextmanager
    def _speaking(self) -> Any:
        """Translate what librdkafka raises inside."""
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            raise self._translated(error.args[0], detail=self._detail) from error

    def _translated(self, error: Any, detail: str = "") -> SourceError:
        return translated(error, self._settings, self._conn_id, detail)

    # ── in the event loop ────────────────────────────────────────────────────────────────────────────

    def _tell(self, what: Callable[..., object], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(what, *args)

    def _joined(self) -> None:
        if not self._ready.done():
            self._ready.set_result(None)

    def _answer(self, questions: list[asyncio.Future[dict[str, int]]], lags: dict[str, int]) -> None:
        for question in questions:
            if not question.done():
                question.set_result(lags)

    def _over(self) -> None:
        self._gone.set()
        self._answer(self._asked(), {})

    def _failed(self, error: Exception) -> None:
        if self._ready.done():
            self._ending.end(error)
        else:
            self._ready.set_exception(error)

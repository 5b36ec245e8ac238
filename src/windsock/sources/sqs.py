"""Messages of an Amazon SQS queue, standard or FIFO, plain or in the envelopes of SNS and EventBridge.

::

    source = SqsSource(SqsConfig(conn_id="aws_default", queue="orders"))
    await source.connect(None)
    async for delivery in source.read():
        print([event.data for event in delivery.events])
        await delivery.ack()                     # deletes the messages

**Events.** The body is read as ``format`` says. The id is the message id, source the queue's ARN, time when
it was sent; message attributes become headers, and what SQS itself says becomes headers that begin with
``aws.``: ``aws.ApproximateReceiveCount``, ``aws.SenderId``, ``aws.MessageDeduplicationId``. In a FIFO queue
the message group is the key and SQS's sequence number the sequence. An SNS notification is unwrapped (id,
time, subject and attributes are those of the publication, source is the topic's ARN), and so is an event of
EventBridge (data is its ``detail``; id, time, source and type are its own); see ``envelope``. SNS's
requests to confirm a subscription are logged and left out.

**Guarantee.** At least once; a message is deleted after the commit. What comes twice keeps its id and is
stored once. A FIFO queue keeps the order of each message group, a standard queue keeps none.

**Where it resumes.** The queue knows: what was taken and not deleted becomes visible again. At an orderly
close that is at once; after a crash it takes ``visibility`` seconds, which are extended in the background
for as long as a message waits to be committed, up to the 12 hours that SQS allows.

**Redrive policy.** SQS moves a message to the dead-letter queue when it was received more than
``maxReceiveCount`` times, and each restart of a reader is one more receipt of what it held: choose 5 or
more; a smaller one is logged when the source connects. Windsock has its own dead letters, so that a
malformed message is never received twice. To watch the dead-letter queue itself, set ``dead_letters``: its
events have the type ``windsock.sqs.dead_letter`` and the queue they came from as subject.

**Connection.** Type ``aws``; see :mod:`windsock.sources._aws` for its fields. The user or role needs
``sqs:GetQueueUrl``, ``GetQueueAttributes``, ``ReceiveMessage``, ``DeleteMessage`` and
``ChangeMessageVisibility``.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from windsock.connections import UsesConnection
from windsock.envelopes import eventbridge, sns
from windsock.events import DeadLetter, Event, InvalidEvent, SourceError
from windsock.messages import Message, MessageOptions, event_of, unreadable
from windsock.sources._aws import client, explained
from windsock.sources._sqs_queue import Held, Queue
from windsock.sources.base import Cursor, Delivery, Guarantees

__all__ = ["SqsConfig", "SqsSource"]

logger = logging.getLogger(__name__)

_ARN = re.compile(r"arn:[\w-]+:sqs:(?P<region>[\w-]+):(?P<account>\d+):(?P<name>[\w.-]+)")
_HOST = re.compile(r"https://sqs\.(?P<region>[\w-]+)\.amazonaws\.")
_SYSTEM = (
    *("ApproximateReceiveCount", "SenderId", "MessageDeduplicationId", "AWSTraceHeader"),
    "DeadLetterQueueSourceArn",
)
"""System attributes that become headers; the others have a place of their own in the event."""
_DIED = "aws.DeadLetterQueueSourceArn"
_FEW_RECEIPTS = 5
_LAG_AGE = 30.0


class SqsConfig(MessageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queue to read."""

    queue: Annotated[str, Meta(description="Name, URL or ARN of the queue.", min_length=1)]
    account: Annotated[
        str | None, Meta(description="Account that owns the queue, if it is named and another's.")
    ] = None
    region: Annotated[
        str | None,
        Meta(description="Region of the queue; by default that of its URL or ARN, else the Connection's."),
    ] = None
    envelope: Annotated[
        Literal["auto", "sns", "eventbridge", "none"],
        Meta(
            description="What is wrapped around an event. 'auto': notifications of SNS and events of "
            "EventBridge are recognised and unwrapped, also one in the other; 'sns' or 'eventbridge': every "
            "message must be one, others become dead letters; 'none': the body is taken as it is."
        ),
    ] = "auto"
    dead_letters: Annotated[
        bool,
        Meta(description="Read the dead-letter queue that the queue's redrive policy names, not the queue."),
    ] = False
    visibility: Annotated[
        int,
        Meta(
            description="Seconds for which a message stays hidden after a crash of the reader. Extended by "
            "itself while a message waits to be committed.",
            ge=2,
            le=43_200,
        ),
    ] = 60
    wait: Annotated[
        int, Meta(description="Seconds that one receive waits for messages (long polling).", ge=1, le=20)
    ] = 20
    receivers: Annotated[
        int, Meta(description="How many receives run at once while the queue is busy.", ge=1, le=50)
    ] = 4


class SqsSource(UsesConnection):
    """Reads one SQS queue."""

    kind: ClassVar[str] = "sqs"
    config: ClassVar[type[SqsConfig]] = SqsConfig
    guarantees: ClassVar[Guarantees] = Guarantees(
        order="none",
        tested="MiniStack and moto (emulators)",
        notes="FIFO queues keep the order of each message group. The lag is SQS's own approximation.",
    )
    tuning: ClassVar[frozenset[str]] = frozenset({"visibility", "wait", "receivers"})

    def __init__(self, config: SqsConfig) -> None:
        self.options = config
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._url = ""
        self._arn = ""
        self._origin: str | None = None
        self._queue: Queue | None = None
        self._lag: int | None = None
        self._asked = 0.0

    async def connect(self, cursor: Cursor | None) -> None:
        await self.close()
        named = _ARN.fullmatch(self.options.queue)
        hosted = named or _HOST.match(self.options.queue)
        region = self.options.region or (hosted["region"] if hosted else None)
        self._client = await self._stack.enter_async_context(
            client("sqs", await self.connection(), region=region)
        )
        with self._explained():
            if named:
                self._url = await self._address(named["name"], named["account"])
            elif "://" in self.options.queue:
                self._url = self.options.queue
            else:
                self._url = await self._address(self.options.queue, self.options.account)
            attributes = await self._attributes("All")
            if self.options.dead_letters:
                self._origin = attributes.get("QueueArn")
                self._url = await self._dead_letter_queue(attributes)
                attributes = await self._attributes("All")
        self._arn = attributes.get("QueueArn") or self._url
        self._warn(attributes)
        self._queue = Queue(
            *(self._client, self._url, self.options.queue, self.options.conn_id),
            visibility=self.options.visibility,
            wait=self.options.wait,
            receivers=self.options.receivers,
        )

    async def read(self) -> AsyncIterator[Delivery]:
        queue = self._queue
        if queue is None:
            raise SourceError(f"SQS queue {self.options.queue!r} is not connected: call connect first")
        queue.start()
        while held := await queue.take():
            yield self._delivery(queue, held)

    async def lag(self) -> int | None:
        """What SQS says is there and not deleted; asked again when something moved, or after a while."""
        queue = self._queue
        if queue is None:
            return None
        if queue.moved or time.monotonic() - self._asked > _LAG_AGE:
            queue.moved, self._asked = False, time.monotonic()
            names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
            with self._explained():
                counts = await self._attributes(*names)
            self._lag = sum(int(counts.get(name, 0)) for name in names)
        return self._lag

    async def close(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            await queue.close()
        await self._stack.aclose()

    def _explained(self) -> Any:
        return explained(f"SQS queue {self.options.queue!r}", self.options.conn_id)

    async def _address(self, name: str, account: str | None) -> str:
        owner = {"QueueOwnerAWSAccountId": account} if account else {}
        return str((await self._client.get_queue_url(QueueName=name, **owner))["QueueUrl"])

    async def _attributes(self, *names: str) -> dict[str, str]:
        answer = await self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=list(names))
        return dict(answer.get("Attributes") or {})

    async def _dead_letter_queue(self, attributes: Mapping[str, str]) -> str:
        target = _ARN.fullmatch(str(_redrive(attributes).get("deadLetterTargetArn")))
        if target is None:
            raise SourceError(
                f"SQS queue {self.options.queue!r} has no dead-letter queue: give it a redrive policy, or "
                "name the dead-letter queue itself and leave out dead_letters"
            )
        return await self._address(target["name"], target["account"])

    def _warn(self, attributes: Mapping[str, str]) -> None:
        receipts = _redrive(attributes).get("maxReceiveCount")
        if receipts is not None and int(receipts) < _FEW_RECEIPTS:
            logger.warning(
                "windsock.sqs.few_receipts queue=%s maxReceiveCount=%s: each restart of the reader counts as "
                "one; set it to %d or more, so that restarts do not move messages to the dead-letter queue",
                *(self.options.queue, receipts, _FEW_RECEIPTS),
            )

    def _delivery(self, queue: Queue, held: Sequence[Held]) -> Delivery:
        events: list[Event] = []
        dead: list[DeadLetter] = []
        for each in held:
            message = _message(each.message, self._origin)
            try:
                event = self._event(message)
            except InvalidEvent as error:
                dead.append(unreadable(message.body, error, where=message.id))
            else:
                events += [event] if event else []
        return Delivery(events, ack=lambda: queue.delete(held), dead=dead)

    def _event(self, message: Message) -> Event | None:
        """The event in a message; None if it is SNS that speaks."""
        envelope, source = self.options.envelope, self._arn
        if envelope in ("auto", "sns"):
            notification = sns.read(message.body)
            if notification is None and envelope == "sns":
                raise InvalidEvent(
                    "not a notification of SNS: set envelope='auto', or 'none' for raw delivery"
                )
            if notification and notification.confirmation:
                logger.warning(
                    "windsock.sqs.subscription_not_confirmed queue=%s topic=%s: the message is left out; "
                    "subscribe the queue as its owner, which needs no confirmation",
                    *(self.options.queue, notification.topic),
                )
                return None
            if notification:
                message, source = sns.message_of(notification, message), notification.topic
        if envelope in ("auto", "eventbridge"):
            wrapped = eventbridge.read(message.body)
            if wrapped is not None:
                return eventbridge.event_of(wrapped, message)
            if envelope == "eventbridge":
                raise InvalidEvent("not an event of EventBridge: set envelope='auto'")
        kind = f"{self.kind}.dead_letter" if _DIED in dict(message.headers) else self.kind
        return event_of(message, self.options, source=source, kind=kind)


def _message(raw: Mapping[str, Any], origin: str | None) -> Message:
    """A message as SQS hands it over; ``origin`` is the queue it died in, if that is known."""
    system = raw.get("Attributes") or {}
    headers: dict[str, Any] = {
        name: value.get("BinaryValue") or value.get("StringValue")
        for name, value in (raw.get("MessageAttributes") or {}).items()
    }
    headers |= {f"aws.{name}": system[name] for name in _SYSTEM if name in system}
    if origin:
        headers.setdefault(_DIED, origin)
    sent = system.get("SentTimestamp")
    return Message(
        body=raw.get("Body", "").encode("utf-8", "surrogatepass"),
        id=raw["MessageId"],
        headers=headers,
        key=system.get("MessageGroupId"),
        subject=headers.get(_DIED),
        time=int(sent) / 1000 if sent and sent.isdecimal() else None,
        sequence=system.get("SequenceNumber"),
    )


def _redrive(attributes: Mapping[str, str]) -> dict[str, Any]:
    try:
        policy = msgspec.json.decode(attributes.get("RedrivePolicy") or "{}")
    except msgspec.DecodeError:
        return {}
    return policy if isinstance(policy, dict) else {}

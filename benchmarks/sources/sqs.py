"""SQS: a standard queue of the MiniStack emulator, received and deleted in batches of ten."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

from windsock.connections import Connection
from windsock.sources._aws import client
from windsock.testing.services.ministack import MiniStack

BATCH = 10
"""The most that SQS takes and gives in one call."""
RECEIVERS = 4
"""The source's default, for both sides."""


class Bench:
    """One server, a fresh queue for each measurement."""

    kind = "sqs"

    def __init__(self, directory: Path) -> None:
        MiniStack.install()
        self._server = MiniStack(directory)
        self._server.start()
        self.fresh()

    def fresh(self) -> None:
        """Go on with a new queue."""
        self._queue = f"bench-{uuid.uuid4()}"

    def options(self) -> dict[str, Any]:
        return {"conn_id": "bench", "queue": self._queue, "receivers": RECEIVERS}

    def connections(self) -> list[Connection]:
        return [self._server.connection("bench")]

    async def fill(self, count: int) -> None:
        """Send in batches, a few at once."""
        async with client("sqs", self._server.connection("bench")) as sqs:
            url = (await sqs.create_queue(QueueName=self._queue))["QueueUrl"]
            numbers = iter(range(0, count, BATCH))

            async def send() -> None:
                for first in numbers:
                    batch = range(first, min(first + BATCH, count))
                    entries = [{"Id": str(number), "MessageBody": _body(number)} for number in batch]
                    await sqs.send_message_batch(QueueUrl=url, Entries=entries)

            await asyncio.gather(*(send() for _ in range(RECEIVERS)))

    async def bare(self, count: int) -> None:
        """As many loops as the source has receivers: receive, read the JSON, delete."""
        async with client("sqs", self._server.connection("bench")) as sqs:
            url = (await sqs.get_queue_url(QueueName=self._queue))["QueueUrl"]
            done = 0

            async def receive() -> None:
                nonlocal done
                while done < count:
                    answer = await sqs.receive_message(
                        QueueUrl=url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=1
                    )
                    messages = answer.get("Messages", [])
                    for message in messages:
                        json.loads(message["Body"])
                    entries = [{"Id": m["MessageId"], "ReceiptHandle": m["ReceiptHandle"]} for m in messages]
                    if entries:
                        await sqs.delete_message_batch(QueueUrl=url, Entries=entries)
                    done += len(entries)

            await asyncio.gather(*(receive() for _ in range(RECEIVERS)))

    def close(self) -> None:
        self._server.stop()


def _body(number: int) -> str:
    """About 460 bytes of JSON."""
    order = {"order_id": number, "customer": f"customer-{number % 100}", "total": number * 0.5}
    return json.dumps({**order, "note": "x" * 385})

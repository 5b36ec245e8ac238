"""Moto's server with one change: each SQS queue is used by one request at a time.

Moto answers requests in threads but does not guard a queue, so that a message sent while another is deleted
can vanish, and one message can be handed to two receivers. A long poll of a FIFO queue whose groups are all
taken spins. AWS does none of this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["guard_queues"]

_PAUSE = 0.1
"""Seconds after which a long poll looks whether a hidden message is visible again."""


def guard_queues() -> None:
    """Let moto's SQS hold a queue's own lock while it looks at the queue or changes it."""
    from moto.sqs.models import Queue, SQSBackend

    setattr(Queue, "wait_for_messages", _wait)  # noqa: B010 - the type checker knows that it is another's
    for name in ("receive_message", "delete_message", "change_message_visibility", "send_message"):
        setattr(SQSBackend, name, _guarded(getattr(SQSBackend, name)))


def _wait(queue: Any, timeout: float) -> None:
    queue._messages_lock.wait(min(timeout, _PAUSE))  # noqa: SLF001 - the lock has no other name


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def guarded(self: Any, queue_name: str, *args: Any, **kwargs: Any) -> Any:
        # A long poll waits for this very lock's condition, which lets others in meanwhile.
        with self.get_queue(queue_name)._messages_lock:  # noqa: SLF001
            return method(self, queue_name, *args, **kwargs)

    return guarded


if __name__ == "__main__":
    from moto.server import main

    guard_queues()
    main()

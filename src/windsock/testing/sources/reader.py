"""One reader in a process of its own, to be killed: ``python -m windsock.testing.sources.reader``.

Arguments: the source's kind, its options as JSON, the log's file, the owner's name, and the moment of the
first append at which the process kills itself -9 (``before_commit``, ``after_commit``, or nothing).
Connections come from the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from windsock.log.sqlite import SqliteLog
from windsock.runner import Runner
from windsock.sources import source_key
from windsock.testing.sources.hooks import QUICK


class _DyingLog(SqliteLog):
    """A log whose process does not survive the first append of events."""

    moment: str = ""

    def append(self, writes: Any, **kwargs: Any) -> Any:
        filled = any(write.events for write in writes)
        if filled and self.moment == "before_commit":
            os.kill(os.getpid(), signal.SIGKILL)
        appended = super().append(writes, **kwargs)
        if filled and self.moment == "after_commit":
            os.kill(os.getpid(), signal.SIGKILL)
        return appended


async def main(kind: str, options: str, path: str, owner: str, moment: str) -> None:
    """Read until killed."""
    log = _DyingLog(path)
    log.moment = moment
    chosen = json.loads(options)
    await Runner(
        source=source_key(kind, chosen), kind=kind, options=chosen, log=log, owner=owner, settings=QUICK
    ).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""One process of test_rules_killed.py: runs a correlation's runner on a log until it is killed."""

from __future__ import annotations

import asyncio
import sys

from windsock.log import open_log
from windsock.runner import Runner
from windsock.sources import source_key


async def main(url: str, watcher: str) -> None:
    """Run the reader of a registered watcher."""
    log = open_log(url)
    spec = log.watcher(watcher)
    assert spec is not None
    key = source_key(spec.kind, spec.options)
    await Runner(source=key, kind=spec.kind, options=spec.options, log=log, owner="the one").run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

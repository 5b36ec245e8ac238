"""One process of test_saga_processes.py: runs a saga whose actions leave a line in a file.

``python saga_process.py <log url> <file> <fails> <moment>``: at that moment, such as ``done pack`` or
``before refund``, it prints a line and waits to be killed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from windsock.log import open_log
from windsock.sourcing import Saga, SagaContext, Step


def main(url: str, file: str, fails: str, moment: str) -> None:
    """Run the saga; say how it ended."""

    def reach(here: str) -> None:
        if here == moment:
            sys.stdout.write(f"{here}\n")
            sys.stdout.flush()
            sys.stdin.readline()
            os._exit(9)

    def act(name: str) -> Callable[[SagaContext], None]:
        def action(context: SagaContext) -> None:
            reach(f"before {name}")
            if name == fails:
                raise RuntimeError(f"{name} is impossible")
            with Path(file).open("a") as effects:
                effects.write(f"{name}\n")
            reach(f"done {name}")

        return action

    steps = [
        Step("reserve", act("reserve"), undo=act("release")),
        Step("charge", act("charge"), undo=act("refund")),
        Step("pack", act("pack"), undo=act("unpack")),
        Step("send", act("send")),
    ]
    log = open_log(url)
    record = Saga("ship", steps, log=log).run("order-17", {"total": 5})
    sys.stdout.write(f"{record.state}\n")
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

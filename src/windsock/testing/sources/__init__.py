"""The contract suite for sources: inherit the classes that fit, give the hooks, and pytest proves the rest.

::

    class TestMine(MessageContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing):
        kind = "mine"                                # or "package.module:Class"

        @pytest.fixture(autouse=True)
        def system(self, mine_server): ...           # the system that is read, with a fresh queue each time

        def options(self): ...                       # the source's options
        def connections(self): ...                   # the Connections that they name
        async def produce(self, count): ...          # put messages there, return their identities in order

| class | for |
|---|---|
| :class:`SourceContract` | every source |
| :class:`MessageContract` | sources of messages with a body and a key: adds large, keyed and malformed ones |
| :class:`MalformedInput` | any other source in whose system something can lie that is no event |
| :class:`ReaderProcesses` | what a second process can read: kill -9 around the commit, two readers |
| :class:`ServerFaults` | sources with a server: it is restarted, and the connection is cut |
| :class:`Unreachable`, :class:`WrongCredentials`, :class:`Missing` | what can be wrong with a system |

What a source cannot give it states in its ``guarantees``, and the suite proves the weaker promise instead.
The suite runs on a real event loop and real time, but asserts no durations: ``patience`` only ends a test
that would hang. Needs ``pytest-asyncio``.
"""

from windsock.testing.sources.contract import MalformedInput, MessageContract, SourceContract
from windsock.testing.sources.faults import (
    Missing,
    ReaderProcesses,
    ServerFaults,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.sources.hooks import Reader, SourceHooks, Through

__all__ = [
    "MalformedInput",
    "MessageContract",
    "Missing",
    "Reader",
    "ReaderProcesses",
    "ServerFaults",
    "SourceContract",
    "SourceHooks",
    "Through",
    "Unreachable",
    "WrongCredentials",
]

"""Real servers, one of each for the whole run.

A server whose software is not there is fetched when everything is required (``make test SERVICES=all``);
otherwise its tests are skipped, and the summary names it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from windsock.testing.services import Service, Unavailable, service_class

pytest.register_assert_rewrite("windsock.testing.sources")

REQUIRED = os.environ.get("WINDSOCK_REQUIRE_ALL") == "1"


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Service]]:
    """Start a server by its name, once; all are stopped at the end."""
    started: dict[str, Service] = {}
    base: Path = tmp_path_factory.mktemp("services")

    def start(name: str) -> Service:
        if name not in started:
            kind = service_class(name)
            try:
                if REQUIRED:
                    kind.install()
                elif not kind.installed():
                    pytest.skip(f"{name} is not here: `make services` gets it")
            except Unavailable as error:
                pytest.fail(str(error)) if REQUIRED else pytest.skip(str(error))
            started[name] = kind(base)
        started[name].start()
        return started[name]

    yield start
    for service in started.values():
        service.stop()

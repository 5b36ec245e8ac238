"""What all tests share: one PostgreSQL per session, examples that repeat, an account of what did not run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings

from windsock.testing.postgres import PostgresServer, Unavailable

# A test passes or fails by the code alone; `make hunt` is what looks for examples that nobody has seen yet.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A real PostgreSQL server, started when the first test asks for it."""
    try:
        server = PostgresServer(tmp_path_factory.mktemp("postgres"))
        server.start()
    except Unavailable as reason:
        pytest.skip(f"PostgreSQL: {reason}")
    with server:
        yield server


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where everything must run (WINDSOCK_REQUIRE_ALL=1), a skipped test is a failed session."""
    if _all_must_run() and _not_run(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List each group of skipped tests with its reason, so that nothing is skipped silently."""
    groups = _not_run(config)
    if not groups:
        return
    terminalreporter.section("Not run on this machine")
    for (place, reason), count in sorted(groups.items()):
        terminalreporter.line(f"{place}: {count} {'test' if count == 1 else 'tests'}: {reason}")
    if _all_must_run():
        terminalreporter.line("WINDSOCK_REQUIRE_ALL is set: this fails the session", red=True)


def _all_must_run() -> bool:
    return os.environ.get("WINDSOCK_REQUIRE_ALL", "") not in ("", "0")


def _not_run(config: pytest.Config) -> Counter[tuple[str, str]]:
    """Skipped tests (or whole files, when their import skips), counted by file and reason."""
    groups: Counter[tuple[str, str]] = Counter()
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    for report in reporter.stats.get("skipped", []) if reporter else []:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        groups[report.nodeid.split("::")[0], reason.removeprefix("Skipped: ")] += 1
    return groups

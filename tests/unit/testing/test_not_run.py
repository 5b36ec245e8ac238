"""What the test session says about tests that did not run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TWO_SKIPPED = """
    import pytest

    @pytest.mark.skip(reason="needs a lighthouse")
    @pytest.mark.parametrize("n", [1, 2])
    def test_lamp(n): ...

    def test_passes(): ...
"""


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A test session that uses our conftest, on a machine where not everything must run."""
    monkeypatch.delenv("WINDSOCK_REQUIRE_ALL", raising=False)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makeconftest((Path(__file__).parents[2] / "conftest.py").read_text())
    return pytester


def test_skipped_tests_are_listed_with_their_reason(session: pytest.Pytester) -> None:
    """Each group of skipped tests is named at the end, with its size and reason; the session still passes."""
    session.makepyfile(test_shore=TWO_SKIPPED)
    result = session.runpytest()
    result.stdout.fnmatch_lines(["*Not run on this machine*", "test_shore.py: 2 tests: needs a lighthouse"])
    assert result.ret == pytest.ExitCode.OK


def test_a_file_that_skips_on_import_is_listed(session: pytest.Pytester) -> None:
    """A whole file that is skipped while it is collected does not vanish."""
    session.makepyfile(test_sea="import pytest\npytest.skip('no sea here', allow_module_level=True)")
    result = session.runpytest()
    result.stdout.fnmatch_lines(["*Not run on this machine*", "test_sea.py: 1 test: no sea here"])


def test_a_skip_fails_a_session_that_must_run_all(
    session: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With WINDSOCK_REQUIRE_ALL=1 a skipped test fails the session and the summary says why."""
    monkeypatch.setenv("WINDSOCK_REQUIRE_ALL", "1")
    session.makepyfile(test_shore=TWO_SKIPPED)
    result = session.runpytest()
    result.stdout.fnmatch_lines(["WINDSOCK_REQUIRE_ALL is set: this fails the session"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_session_without_skips_says_nothing(
    session: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When everything ran there is no such section and nothing fails, strict or not."""
    monkeypatch.setenv("WINDSOCK_REQUIRE_ALL", "1")
    session.makepyfile("def test_passes(): ...")
    result = session.runpytest()
    result.stdout.no_fnmatch_line("*Not run on this machine*")
    assert result.ret == pytest.ExitCode.OK

"""The command line as a whole."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from windsock import __version__
from windsock.cli import app


@pytest.mark.parametrize("command", ["demo", "status", "events", "dlq list"])
def test_every_command_has_examples(command: str) -> None:
    """Help shows how to call the command."""
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    _, _, examples = result.stdout.partition("Examples:")
    assert f"windsock {command}" in examples


def test_without_a_command_there_is_help() -> None:
    """`windsock` alone lists the commands."""
    result = CliRunner().invoke(app, [])
    assert all(command in result.output for command in ("demo", "status", "events", "dlq"))


def test_version() -> None:
    """`--version` says the package's version."""
    assert CliRunner().invoke(app, ["--version"]).stdout == f"windsock {__version__}\n"


def test_help_does_not_import_airflow() -> None:
    """Airflow, the web client and the screen are imported by the command that needs them, not by help."""
    slow = {"airflow", "httpx", "psutil", "fastapi"}
    script = f"import sys, windsock.cli; print(sorted({slow!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

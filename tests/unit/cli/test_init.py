"""The starter project: written whole or not at all, ready for the next command."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from windsock.cli import app
from windsock.cli.init import starter_files

FILES = {
    *("README.md", "requirements.txt", ".gitignore", "env.sh", "send_order.py", "inbox/.gitkeep"),
    *("dags/add_up.py", "dags/ship.py"),
}


def init(*arguments: str) -> Result:
    """Run `windsock init`."""
    return CliRunner().invoke(app, ["init", *arguments])


def written(directory: Path) -> set[str]:
    """The files below a directory."""
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def source(project: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Read env.sh in a plain shell; what it exports comes as JSON on standard output."""
    show = f"exec '{sys.executable}' -c 'import json, os; print(json.dumps(dict(os.environ)))'"
    return subprocess.run(
        ["sh", "-c", f". ./env.sh && {show}"],
        cwd=project,
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A new starter project."""
    assert init(str(tmp_path / "kites")).exit_code == 0
    return tmp_path / "kites"


def test_writes_into_a_new_directory(tmp_path: Path) -> None:
    """Missing directories are made; every file is listed, and the next step goes there."""
    target = tmp_path / "a" / "b"
    result = init(str(target))
    assert result.exit_code == 0
    assert written(target) == FILES
    assert all(str(target / name) in result.stdout for name in FILES)
    assert f"Next: cd {target} && . ./env.sh && airflow standalone" in result.stdout


def test_writes_here_beside_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an argument it is this directory, which may hold other things, such as .venv."""
    (tmp_path / ".venv").mkdir()
    monkeypatch.chdir(tmp_path)
    result = init()
    assert result.exit_code == 0
    assert written(tmp_path) == FILES
    assert "Next: . ./env.sh && airflow standalone" in result.stdout


@pytest.mark.parametrize("name", sorted(FILES))
def test_overwrites_nothing(tmp_path: Path, name: str) -> None:
    """A file in the way is named and kept, and nothing is written beside it."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    result = init(str(tmp_path))
    assert result.exit_code == 2
    assert f"{path} is there already: nothing was written" in result.stderr
    assert written(tmp_path) == {name}
    assert path.read_text() == "mine"


def test_a_dangling_link_is_in_the_way_too(tmp_path: Path) -> None:
    """A link that leads nowhere yet is not written through."""
    (tmp_path / "env.sh").symlink_to(tmp_path / "elsewhere.sh")
    result = init(str(tmp_path))
    assert result.exit_code == 2
    assert "env.sh is there already" in result.stderr
    assert written(tmp_path) == set()


def test_a_file_instead_of_a_directory(tmp_path: Path) -> None:
    """The error says what is wrong and what to do."""
    (tmp_path / "kites").write_text("")
    result = init(str(tmp_path / "kites"))
    assert result.exit_code == 2
    assert "cannot write the project" in result.stderr
    assert "name another directory" in result.stderr


def test_help_has_examples() -> None:
    """Help shows how to call it."""
    assert "windsock init kites" in init("--help").stdout


def test_nothing_else_is_in_the_starter() -> None:
    """What Python leaves beside the starter's Dags is not part of it."""
    assert set(starter_files()) == FILES


def test_the_settings_stay_in_the_project(project: Path) -> None:
    """env.sh keeps Airflow inside the project and on loopback, at 8080 or at PORT."""
    settings = json.loads(source(project).stdout)
    assert settings["AIRFLOW_HOME"] == str(project / "airflow")
    assert settings["AIRFLOW__CORE__DAGS_FOLDER"] == str(project / "dags")
    assert settings["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert settings["AIRFLOW__API__BASE_URL"] == "http://127.0.0.1:8080"
    other = json.loads(source(project, PORT="9000").stdout)
    assert (other["AIRFLOW__API__PORT"], other["AIRFLOW__API__BASE_URL"]) == ("9000", "http://127.0.0.1:9000")


def test_the_secret_is_made_once_and_kept_private(project: Path) -> None:
    """Each project has its own secret, the same in every terminal, readable by its owner only, not in git."""
    first, second = (json.loads(source(project).stdout) for _ in range(2))
    assert len(first["SHOP_SECRET"]) == 48
    assert first["SHOP_SECRET"] == second["SHOP_SECRET"]
    assert json.loads(first["AIRFLOW_CONN_SHOP"])["password"] == first["SHOP_SECRET"]
    assert stat.S_IMODE((project / ".secret").stat().st_mode) == 0o600
    assert ".secret" in (project / ".gitignore").read_text().splitlines()


def test_the_settings_refuse_another_directory(project: Path) -> None:
    """Read from elsewhere, env.sh says what to do instead of putting Airflow there."""
    there = subprocess.run(
        ["sh", "-c", ". kites/env.sh || exit 7"],
        cwd=project.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert there.returncode == 7
    assert "change into the project's directory" in there.stderr
    assert not (project.parent / "airflow").exists()

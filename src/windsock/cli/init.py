"""`windsock init`: a starter project, with a Dag that reacts to files and one that reacts to webhooks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from windsock.cli.terminal import fail

__all__ = ["init"]

STARTER = Path(__file__).parent / "starter"

_RENAMED = {"gitignore": ".gitignore"}
"""A file of that name in this package would tell git and the build what to leave out here, too."""

_INBOX = "inbox/.gitkeep"


def init(
    directory: Annotated[
        Path, typer.Argument(help="Where to write it; made if it does not exist.", show_default="here")
    ] = Path(),
) -> None:
    """Write a starter project: a Dag that reacts to files, one that reacts to signed webhooks.

    Nothing that exists is overwritten: if one of the files is there already,
    it is named and nothing is written.

    \b
    Examples:
      windsock init
      windsock init kites
    """
    files = starter_files()
    if taken := [str(directory / name) for name in files if os.path.lexists(directory / name)]:
        verb = "is" if len(taken) == 1 else "are"
        fail(f"{', '.join(taken)} {verb} there already: nothing was written; name another directory")
    try:
        for name, content in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(content)
            typer.echo(f"  {path}")
    except OSError as error:
        fail(f"cannot write the project: {error}; name another directory")
    enter = "" if directory.resolve() == Path.cwd() else f"cd {directory} && "
    typer.echo(f"\nNext: {enter}. ./env.sh && airflow standalone")
    typer.echo(f"Then drop a CSV file into {directory / 'inbox'}; README.md there goes on from here.")


def starter_files() -> dict[str, bytes]:
    """Every file of the project by its path in it."""
    files = {}
    for path in sorted(STARTER.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(STARTER).as_posix()
            files[_RENAMED.get(name, name)] = path.read_bytes()
    return {**files, _INBOX: b""}

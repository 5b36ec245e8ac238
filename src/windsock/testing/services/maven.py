"""Servers out of Maven Central, fetched by ``mvn`` into the cache and run by ``java``, without root.

A server that is published as libraries is fetched with all that it needs (:func:`libraries`), one that is
published as an archive is unpacked (:func:`archive`).
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

from windsock.testing.services.base import Unavailable, cache_directory

__all__ = ["archive", "fetched", "libraries", "root"]

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_GETTER = "org.apache.maven.plugins:maven-dependency-plugin:2.8"
"""The last one that fetches a single file without asking for the projects it was built from."""


def root(name: str) -> Path:
    """The directory that the software of ``name`` is kept in."""
    return cache_directory() / "maven" / name


def fetched(name: str) -> bool:
    """Whether the software of ``name`` is there and can be run, without looking at the network."""
    return (root(name) / ".complete").exists() and shutil.which("java") is not None


def libraries(name: str, *coordinates: str) -> Path:
    """The directory with these ``group:artifact:version`` and everything they need at run time."""

    def fill(directory: Path) -> None:
        project = directory / "pom.xml"
        project.write_text(_project(name, coordinates))
        _mvn("-f", str(project), f"{_PLUGIN}:copy-dependencies",
             "-DincludeScope=runtime", f"-DoutputDirectory={directory}")  # fmt: skip

    return _once(name, fill)


def archive(name: str, coordinate: str) -> Path:
    """The directory into which ``group:artifact:version:tar.gz:classifier`` was unpacked."""

    def fill(directory: Path) -> None:
        packed = directory / "packed.tar.gz"
        _mvn(f"{_GETTER}:get", f"-Dartifact={coordinate}", "-Dtransitive=false", f"-Ddest={packed}")
        with tarfile.open(packed) as files:
            files.extractall(directory, filter="data")
        packed.unlink()

    return _once(name, fill)


def _once(name: str, fill: Callable[[Path], None]) -> Path:
    """Fill the directory of ``name`` unless it is complete, while no other process does."""
    directory = root(name)
    done = directory / ".complete"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            for program in ("java", "mvn"):
                if shutil.which(program) is None:
                    raise Unavailable(f"{name}: needs {program}: install Java 17 and Maven")
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            fill(directory)
            done.touch()
    return directory


def _project(name: str, coordinates: tuple[str, ...]) -> str:
    """The smallest Maven project that depends on these."""
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *map(escape, coordinate.split(":"))
        )
        for coordinate in coordinates
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>windsock</groupId><artifactId>{escape(name)}</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _mvn(*arguments: str) -> None:
    command = ["mvn", "--batch-mode", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"mvn failed: {(done.stdout + done.stderr).strip()[-500:]}")

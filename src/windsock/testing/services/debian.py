"""Servers out of Debian packages, unpacked into the cache: no root, and nothing of the system is touched.

``apt-get`` resolves and downloads with state of its own; ``dpkg-deb`` unpacks. Works on Debian and Ubuntu.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from windsock.testing.services.base import Unavailable, cache_directory

__all__ = ["fetch", "root", "with_libraries"]


def root(name: str) -> Path:
    """The directory tree that the packages of ``name`` are unpacked into."""
    return cache_directory() / "debian" / name


def fetch(name: str, *packages: str) -> Path:
    """The tree with these packages and what they need beyond the system's own; downloaded once."""
    tree = root(name)
    done = tree / ".complete"
    if done.exists():
        return tree
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise Unavailable(f"{name}: needs Debian's or Ubuntu's apt-get and dpkg-deb to fetch its packages")
    lists = cache_directory() / "debian" / ".apt"
    archives = tree.parent / f".{name}"
    for directory in (lists / "lists" / "partial", archives / "archives" / "partial"):
        directory.mkdir(parents=True, exist_ok=True)
    # One at a time: an update under way leaves another process without the lists that it installs from.
    with (lists / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            _apt(lists, archives, "update")
            _apt(lists, archives, "install", "--no-install-recommends", "--download-only", "--yes", *packages)
            _unpack(archives, tree)
            done.touch()
    return tree


def _unpack(archives: Path, tree: Path) -> None:
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for archive in sorted((archives / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", archive, tree], check=True)
    shutil.rmtree(archives, ignore_errors=True)


def with_libraries(tree: Path) -> dict[str, str]:
    """An environment in which programs of the tree find its libraries and each other."""
    libraries = [str(path) for path in (tree / "usr" / "lib").glob("*-linux-gnu*")]
    programs = [str(tree / "usr" / place) for place in ("sbin", "bin")]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": os.pathsep.join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")]).strip(":"),
        "PATH": os.pathsep.join([*programs, os.environ.get("PATH", "")]),
    }


def _apt(lists: Path, cache: Path, *arguments: str) -> None:
    options = {
        "Dir::State": lists,
        "Dir::State::lists": lists / "lists",
        "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": cache,
        "Debug::NoLocking": "true",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
    }
    command = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items()), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"apt-get {arguments[0]} failed: {done.stderr.strip()[-500:]}")

"""Parse reference Dags as Airflow does, and tell as JSON what each file did and what Dags it has.

A process of its own, since an audit hook cannot be taken back: ``python probe.py <file>…``. Everything that
Airflow and Windsock import by themselves is imported first, so that what is seen is the file's own doing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FORBIDDEN = (
    *("socket.", "subprocess.", "shutil.", "urllib.", "ftplib.", "smtplib.", "sqlite3."),
    *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"),
    *("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.putenv", "os.unsetenv", "os.utime"),
)


class Eye:
    """Sees what the file that is being parsed does."""

    def __init__(self) -> None:
        self.open = False
        self.seen: list[str] = []
        sys.addaudithook(self._look)
        start = threading.Thread.start

        def seen_start(thread: threading.Thread) -> None:
            if self.open:
                self.seen.append(f"start thread {thread.name}")
            start(thread)

        # Python 3.11 has no audit event for threads.
        threading.Thread.start = seen_start  # type: ignore[method-assign, assignment]

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.open:
            return
        if event == "open" and _writes(arguments):
            self.seen.append(f"open {arguments[0]} to write")
        elif event.startswith(FORBIDDEN):
            self.seen.append(event)
            if event.startswith(("socket.", "subprocess.")):
                raise PermissionError(f"{event} while a Dag file is parsed")


def _writes(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    return bool(mode and set(mode) & set("wax+")) or bool(isinstance(flags, int) and flags & WRITING)


def _ours(warning: warnings.WarningMessage) -> bool:
    """Whether the file can do something about it: a provider may lag behind Airflow in its own imports."""
    return "/airflow/providers/" not in Path(warning.filename).as_posix()


def main(files: list[str]) -> None:
    """Parse each file in turn."""
    sys.dont_write_bytecode = True
    from airflow.dag_processing.dagbag import DagBag

    import windsock.watchers

    assert windsock.watchers.__all__
    # Once with the eye closed: what Airflow imports late is not the file's doing.
    DagBag(dag_folder=files[0], safe_mode=False)
    eye = Eye()
    reports = {}
    for file in files:
        environment = dict(os.environ)
        eye.seen, eye.open = [], True
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            bag = DagBag(dag_folder=file, safe_mode=False)
        eye.open = False
        reports[Path(file).stem] = {
            "errors": list(bag.import_errors.values()),
            "warnings": sorted({f"{one.category.__name__}: {one.message}" for one in caught if _ours(one)}),
            "seen": eye.seen,
            "environment": environment == dict(os.environ),
            "dags": {
                dag_id: {"tags": sorted(dag.tags), "doc": dag.doc_md, "tasks": sorted(dag.task_ids)}
                for dag_id, dag in bag.dags.items()
            },
        }
    json.dump(reports, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])

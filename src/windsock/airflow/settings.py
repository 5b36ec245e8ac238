"""What the ``[windsock]`` section of Airflow's configuration says, and the log that it names."""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path

from airflow.configuration import AIRFLOW_HOME, conf

from windsock.log import Log, LogUnavailable, open_log
from windsock.spec import seconds

__all__ = ["get_log", "inline_bytes", "inline_events", "log_url", "retention"]

SECTION = "windsock"

_logs: dict[int, Log] = {}
_lock = threading.Lock()


def log_url() -> str:
    """Where the event log is: ``log_url``, else Connection ``log_conn_id``, else a file in AIRFLOW_HOME."""
    if url := conf.get(SECTION, "log_url", fallback=""):
        return str(url)
    if conn_id := conf.get(SECTION, "log_conn_id", fallback=""):
        from airflow.sdk import Connection
        from airflow.sdk.exceptions import AirflowException

        from windsock.airflow.hooks import log_url_of

        try:
            return log_url_of(Connection.get(conn_id))
        except AirflowException as error:
            raise LogUnavailable(f"[windsock] log_conn_id = {conn_id}: {error}") from error
    return f"sqlite:///{Path(AIRFLOW_HOME) / 'windsock.db'}"


def get_log() -> Log:
    """The event log of this process: opened once, and anew after a fork."""
    with _lock:
        process = os.getpid()
        if process not in _logs:
            _logs.clear()  # what a parent process opened must not be used here
            _logs[process] = open_log(log_url())
            atexit.register(_logs[process].close)
        return _logs[process]


def forget_log() -> None:
    """Open the log anew at the next use."""
    with _lock:
        _logs.clear()


def inline_events() -> int:
    """The most events that an announcement carries itself."""
    return int(conf.getint(SECTION, "inline_events", fallback=20))


def inline_bytes() -> int:
    """The most bytes of events that an announcement carries itself."""
    return int(conf.getint(SECTION, "inline_bytes", fallback=16_384))


def retention() -> float:
    """Seconds after which settled events are deleted."""
    return seconds(conf.get(SECTION, "retention", fallback="30d"))

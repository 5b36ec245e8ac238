"""What the ``[windsock]`` section of Airflow's configuration says, and the log that it names."""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path

from airflow.configuration import AIRFLOW_HOME, conf

from windsock.log import Log, LogUnavailable, open_log
from windsock.spec import SpecError, rate, seconds

__all__ = [
    "alert_callback",
    "dead_letter_alert",
    "get_log",
    "inline_bytes",
    "inline_events",
    "log_url",
    "retention",
    "water_total",
]

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


def water_total() -> tuple[int, int]:
    """(high, low): unsettled events of all watchers at which sources are paused and go on; 0 for no limit."""
    high = int(conf.getint(SECTION, "high_water_total", fallback=0))
    low = int(conf.getint(SECTION, "low_water_total", fallback=0)) or high // 2
    if low > high or min(low, high) < 0:
        raise SpecError(f"[windsock] low_water_total = {low} must be between 0 and high_water_total = {high}")
    return high, low


def retention() -> float:
    """Seconds after which settled events are deleted."""
    return seconds(conf.get(SECTION, "retention", fallback="30d"))


def dead_letter_alert() -> tuple[int, float] | None:
    """(letters, seconds): more letters than that in so many seconds are worth an alert."""
    text = str(conf.get(SECTION, "dead_letter_alert", fallback="") or "")
    return rate(text) if text else None


def alert_callback() -> str:
    """``package.module:function`` that is called with every alert, or nothing."""
    return str(conf.get(SECTION, "alert_callback", fallback="") or "")

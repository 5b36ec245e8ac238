"""The triggers to defer to: ``from windsock.triggers import HttpPollingTrigger``."""

from __future__ import annotations

from windsock.airflow.file_pattern import FilePatternTrigger
from windsock.airflow.http_polling import HttpPollingTrigger

__all__ = ["FilePatternTrigger", "HttpPollingTrigger"]

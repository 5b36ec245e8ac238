"""The sensors, all deferrable: ``from windsock.sensors import FilePatternSensor``."""

from __future__ import annotations

from windsock.airflow.file_pattern import FilePatternSensor

__all__ = ["FilePatternSensor"]

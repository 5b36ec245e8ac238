"""Operators that hold no worker while they wait: ``from windsock.operators import HttpPollingOperator``."""

from __future__ import annotations

from windsock.airflow.http_polling import HttpPollingError, HttpPollingOperator, HttpPollingTimeout

__all__ = ["HttpPollingError", "HttpPollingOperator", "HttpPollingTimeout"]

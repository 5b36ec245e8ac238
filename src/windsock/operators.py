"""Windsock's operators: ``from windsock.operators import HttpPollingOperator, RouteToDagOperator``."""

from __future__ import annotations

from windsock.airflow.http_polling import HttpPollingError, HttpPollingOperator, HttpPollingTimeout
from windsock.airflow.route import RouteToDagOperator

__all__ = ["HttpPollingError", "HttpPollingOperator", "HttpPollingTimeout", "RouteToDagOperator"]

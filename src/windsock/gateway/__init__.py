"""HTTP into the log: webhooks and CloudEvents. Knows nothing of Airflow, which mounts it."""

from __future__ import annotations

from windsock.gateway.app import create_app
from windsock.gateway.auth import Secret, sign

__all__ = ["Secret", "create_app", "sign"]

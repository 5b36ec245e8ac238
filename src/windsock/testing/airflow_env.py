"""The environment of a test Airflow: everything under one directory, on loopback, and quick to react."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
from pathlib import Path

from windsock.testing.processes import LOOPBACK

__all__ = ["database_address", "environment"]

_FAST = {
    "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
    "AIRFLOW__CORE__PARALLELISM": "4",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "1",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",  # a resolver that hangs is none of our business
    "AIRFLOW__API__HOST": LOOPBACK,
    "AIRFLOW__API__WORKERS": "1",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "2",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
    "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
    "AIRFLOW__DAG_PROCESSOR__STALE_DAG_THRESHOLD": "10",
    "AIRFLOW__SCHEDULER__PARSING_CLEANUP_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    "AIRFLOW__SCHEDULER__JOB_HEARTBEAT_SEC": "1",
    # What a killed process held comes back after these. Longer than a busy two-core machine is ever late,
    # far shorter than Airflow's own half minutes and ten minutes.
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "3",
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__DATABASE__CHECK_MIGRATIONS": "False",  # we migrated, so that five processes need not look
    "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
    "AIRFLOW__LOGGING__NAMESPACE_LEVELS": (
        "http.access=WARNING airflow.serialization=WARNING airflow.models.dag=WARNING"
    ),
    "NO_PROXY": f"{LOOPBACK},localhost",
    "no_proxy": f"{LOOPBACK},localhost",
    "PYTHONUNBUFFERED": "1",
}


def environment(airflow_home: Path, dags: Path, database: str, port: int) -> dict[str, str]:
    """The variables of every component: the caller's, without its own Airflow settings, plus ours."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    keep.pop("PYTHONWARNINGS", None)  # the tests' strictness is not Airflow's
    keep.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # five processes that compile all of Airflow start twice as slowly
    env = {
        **keep,
        **_FAST,
        **_secrets(airflow_home),
        "AIRFLOW_HOME": str(airflow_home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{LOOPBACK}:{port}/execution/",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://{LOOPBACK}:{port}",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
    }
    if database.startswith("postgresql"):
        # Left to itself, Airflow takes asyncpg for the asynchronous connection.
        env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC"] = database
    return env


def database_address(database: str, airflow_home: Path) -> str:
    """SQLAlchemy's address for "sqlite" or for any spelling of a PostgreSQL address."""
    if database == "sqlite":
        return f"sqlite:///{airflow_home / 'airflow.db'}?timeout=30"
    address, known = re.subn(r"^postgres(ql)?(\+\w+)?://", "postgresql+psycopg://", database)
    if not known:
        raise ValueError(f"{database!r} is no database for Airflow: use 'sqlite' or postgresql://…")
    return address


def _secrets(airflow_home: Path) -> dict[str, str]:
    """Keys that all components share, and that a second start finds again."""
    path = airflow_home / "secrets.json"
    if not path.is_file():
        keys = {
            "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        }
        airflow_home.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(json.dumps(keys))
    return dict(json.loads(path.read_text()))

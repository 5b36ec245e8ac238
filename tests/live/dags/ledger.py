"""What the live Dags write down, so that a test can tell which run really had which event.

One file per run and task try, written whole and renamed, in the directory that the test names.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airflow.sdk import get_current_context


def record(values: Iterable[Any]) -> None:
    """Write down what this run had."""
    run = get_current_context()["dag_run"]
    folder = Path(os.environ["WINDSOCK_TEST_LEDGER"]) / run.dag_id
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{uuid.uuid4().hex}"
    draft.write_text(json.dumps({"run_id": run.run_id, "values": list(values)}))
    draft.rename(folder / f"{uuid.uuid4().hex}.json")

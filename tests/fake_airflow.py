"""The part of Airflow's API that the Airflow source reads, over HTTP, with rows that a test makes.

It answers as Airflow 3.3 does on PostgreSQL: tokens for a login, ranges and states as filters, rows without
the time that is asked for counted as now and last, the order that is asked for with the row's number as the
last word, pages of at most 100. `tests/live/test_airflow_source.py` runs the same suite on the real one.
"""

from __future__ import annotations

import json
import threading
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LOGIN, PASSWORD = "watcher", "right-horse"
PAGE = 100


class FakeAirflow:
    """Dag runs, task instances and asset events, in a list each."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {
            "dag_runs": [],
            "task_instances": [],
            "asset_events": [],
        }
        self.dags = {"hello"}
        self.asked: list[str] = []
        self.token = "token-1"
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """Where it listens; the same after a restart."""
        return self._port

    def start(self) -> None:
        """Listen."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        self._server.daemon_threads = True
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        """Stop listening; the rows stay."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = None

    def run(
        self, run_id: str, end: str | None, *, dag: str = "hello", state: str = "success", **more: Any
    ) -> None:
        """Add a run, or change the one of that name."""
        row = {
            "dag_id": dag,
            "dag_run_id": run_id,
            "state": state,
            "start_date": end,
            "end_date": end,
            **more,
        }
        kept = [known for known in self.rows["dag_runs"] if known["dag_run_id"] != run_id]
        self.rows["dag_runs"] = [*kept, row]

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        """Status and body of one GET below /api/v2."""
        parts = [unquote(part) for part in path.removeprefix("/api/v2/").split("/")]
        kind = {"dagRuns": "dag_runs", "taskInstances": "task_instances"}.get(parts[-1], "asset_events")
        rows = list(self.rows[kind])
        if parts[0] == "dags" and parts[1] != "~":
            if parts[1] not in self.dags:
                return 404, {"detail": f"The Dag with ID: `{parts[1]}` was not found"}
            rows = [row for row in rows if row["dag_id"] == parts[1]]
        if pattern := query.get("dag_id_pattern"):
            terms = [
                f"*{term.replace('%', '*').replace('_', '?').lower()}*" for term in pattern[0].split("|")
            ]
            rows = [row for row in rows if any(fnmatchcase(row["dag_id"].lower(), term) for term in terms)]
        if dag := query.get("source_dag_id"):
            rows = [row for row in rows if row["source_dag_id"] == dag[0]]
        if states := query.get("state"):
            rows = [row for row in rows if row["state"] in states]
        order = query["order_by"][0]
        field = order.lstrip("-")
        since = query[f"{field}_gte"][0].replace("+00:00", "Z")
        since = since if "." in since else since.replace("Z", ".000000Z")
        rows = [row for row in rows if row[field] is None or row[field] >= since]  # not yet counts as now
        rows.sort(key=lambda row: row[field] or "9999", reverse=order.startswith("-"))
        offset, limit = int(query["offset"][0]), min(int(query["limit"][0]), PAGE)
        return 200, {kind: rows[offset : offset + limit], "total_entries": len(rows)}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        airflow = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_POST(self) -> None:
                given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if given == {"username": LOGIN, "password": PASSWORD}:
                    self._reply(201, {"access_token": airflow.token})
                else:
                    self._reply(401, {"detail": "Invalid credentials"})

            def do_GET(self) -> None:
                airflow.asked.append(self.path)
                if self.headers.get("Authorization") != f"Bearer {airflow.token}":
                    self._reply(401, {"detail": "Not authenticated"})
                    return
                url = urlsplit(self.path)
                self._reply(*airflow.answer(url.path, parse_qs(url.query)))

            def _reply(self, status: int, body: Any) -> None:
                encoded = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            def log_message(self, *_: Any) -> None:
                """The test says what is worth saying."""

        return Handler

"""What senders send: signed headers, made by hand and not with the code under test."""

from __future__ import annotations

import base64
import hmac
import time
from pathlib import Path
from typing import Any

from windsock.log.records import EventQuery

CORPORA = Path(__file__).parents[2] / "corpora"
SECRET = "s3cr3t-of-the-shop"
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def digest(message: bytes, algorithm: str = "sha256") -> bytes:
    return hmac.digest(SECRET.encode(), message, algorithm)


def stamp() -> str:
    return str(int(time.time()))


def github(body: bytes, event: str = "push", delivery: str = "d-1") -> dict[str, str]:
    return {
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": delivery,
        "X-GitHub-Hook-ID": "42",
        "X-Hub-Signature-256": "sha256=" + digest(body).hex(),
        **JSON,
    }


def slack(body: bytes, content: dict[str, str] = JSON) -> dict[str, str]:
    now = stamp()
    signature = digest(b"v0:" + now.encode() + b":" + body).hex()
    return {"X-Slack-Request-Timestamp": now, "X-Slack-Signature": f"v0={signature}", **content}


def standard(body: bytes, id: str = "msg_1", family: str = "webhook") -> dict[str, str]:
    now = stamp()
    signature = base64.b64encode(digest(b".".join([id.encode(), now.encode(), body]))).decode()
    return {
        f"{family}-id": id, f"{family}-timestamp": now, f"{family}-signature": f"v1,{signature}", **JSON,
    }  # fmt: skip


def only(site: Any) -> Any:
    """The one event in the log."""
    [record] = site.log.events(EventQuery())
    return record.event

"""The two doors: files that are dropped into a folder, and signed webhooks."""

from __future__ import annotations

import json
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from windsock.cli.demo.site import DemoError
from windsock.gateway.auth import sign

__all__ = ["Parcel", "Sender", "curl", "parcels"]

_ACCEPTED = (200, 202)
_FOR_EVER = (400, 401, 403, 413, 415, 422)
_PATIENCE = 90.0
_ITEMS = ("kite", "balloon", "glider", "pennant", "whirligig", "windmill", "streamer", "lantern")


@dataclass(frozen=True)
class Parcel:
    """One event to send: through which door, under which name, with what in it."""

    watcher: str
    name: str
    data: dict[str, Any]

    @property
    def door(self) -> str:
        """`file` or `webhook`."""
        return "file" if self.watcher == "reports" else "webhook"


def parcels() -> list[Parcel]:
    """The demo's events, twelve for each door, under names that were never used before."""
    token = secrets.token_hex(3)
    files = [
        Parcel("reports", f"report-{token}-{n:02}.csv", {"item": "wind", "amount": n}) for n in range(1, 13)
    ]
    hooks = [
        Parcel("orders", f"order-{token}-{n:02}", {"item": item, "amount": n})
        for n, item in enumerate(_ITEMS, 1)
    ]
    payments: tuple[dict[str, Any], ...] = (
        {"amount": 12},
        {"amount": 7, "bank": "away"},
        {"amount": -3},
        {"amount": 30},
    )
    hooks += [Parcel("payments", f"payment-{token}-{n:02}", data) for n, data in enumerate(payments, 1)]
    return [parcel for pair in zip(files, hooks, strict=True) for parcel in pair]


class Sender(threading.Thread):
    """Sends parcels in the background, `pause` seconds apart, each until it is accepted."""

    def __init__(self, url: str, inbox: Path, secret: str, parcels: list[Parcel], *, pause: float) -> None:
        super().__init__(name="demo-sender", daemon=True)
        self.parcels = parcels
        self.sent: list[Parcel] = []
        self.error: DemoError | None = None
        self._url, self._inbox, self._secret, self._pause = url, inbox, secret, pause
        self._stop_sending = threading.Event()

    def run(self) -> None:
        try:
            with httpx.Client(base_url=self._url, timeout=30, trust_env=False) as client:
                for parcel in self.parcels:
                    if self._stop_sending.wait(self._pause):
                        return
                    if parcel.door == "file":
                        drop(self._inbox, parcel)
                    elif not self._call(client, parcel):
                        return
                    self.sent.append(parcel)
        except DemoError as error:
            self.error = error
        except OSError as error:
            self.error = DemoError(f"cannot write into {self._inbox}: {error}")

    def stop(self) -> None:
        """Send nothing more."""
        self._stop_sending.set()

    def _call(self, client: httpx.Client, parcel: Parcel) -> bool:
        """Call the webhook until it says that the event is stored, or False if we are to stop before.

        The delivery id makes repeats harmless.
        """
        body = json.dumps(parcel.data).encode()
        deadline = time.monotonic() + _PATIENCE
        answer = ""
        while time.monotonic() < deadline:
            try:
                response = client.post(
                    f"/windsock/hooks/{parcel.watcher}", content=body, headers=self._headers(parcel, body)
                )
            except httpx.TransportError as error:
                answer = repr(error)
            else:
                if response.status_code in _ACCEPTED:
                    return True
                answer = f"{response.status_code} {response.text}"
                if response.status_code in _FOR_EVER:
                    break
            if self._stop_sending.wait(0.5):
                return False
        raise DemoError(f"the webhook {parcel.watcher!r} did not accept {parcel.name}: {answer}")

    def _headers(self, parcel: Parcel, body: bytes) -> dict[str, str]:
        now = str(int(time.time()))
        return {
            "Content-Type": "application/json",
            "X-Windsock-Delivery": parcel.name,
            "X-Windsock-Timestamp": now,
            "X-Windsock-Signature": f"sha256={sign(self._secret, body, now)}",
        }


def drop(inbox: Path, parcel: Parcel) -> None:
    """Write a file and rename it into place, as a careful writer does: nobody sees half of it."""
    draft = inbox / f".{parcel.name}.tmp"
    draft.write_text(
        ",".join(parcel.data) + "\n" + ",".join(str(value) for value in parcel.data.values()) + "\n"
    )
    draft.rename(inbox / parcel.name)


def curl(url: str, secret: str) -> list[str]:
    """Lines to paste into a shell: sign an order and send it."""
    return [
        """body='{"item": "kite", "amount": 12}'; now=$(date +%s)""",
        f"""sig=$(printf '%s.%s' "$now" "$body" | openssl dgst -sha256 -hmac {secret} -r | cut -d' ' -f1)""",
        """curl -d "$body" -H "Content-Type: application/json" -H "X-Windsock-Timestamp: $now" \\""",
        f"""  -H "X-Windsock-Signature: sha256=$sig" {url}/windsock/hooks/orders""",
    ]

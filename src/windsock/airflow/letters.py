"""What the keeper does for dead letters: redrives those whose time has come, and tells when too many are set
aside."""

from __future__ import annotations

import importlib
import logging
import time
import uuid
from typing import Any

from windsock.airflow import settings
from windsock.events import WindsockError
from windsock.log import Log
from windsock.recovery import retry_letters

__all__ = ["LetterCare"]

logger = logging.getLogger(__name__)

ACCUMULATING = "windsock.dead_letters.accumulating"
_LEASE = "windsock-dead-letter-alert"
_LOOK_SECONDS = 10.0
_NAMED = 5
"""Watchers that the warning names, those with the most letters."""


class LetterCare:
    """Called in every round of the keeper."""

    def __init__(self) -> None:
        self._looked_at = float("-inf")

    def round(self, log: Log) -> None:
        """Redrive what is due; every few seconds, count."""
        result = retry_letters(log)
        if result != type(result)():
            logger.info(
                "windsock.dead_letters.retried delivered=%d appended=%d filtered=%d failed=%d",
                result.delivered,
                result.appended,
                result.filtered,
                len(result.failed),
            )
        if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            alert_on_letters(log)


def alert_on_letters(log: Log) -> None:
    """Warn, and call who wants to know, if more letters were set aside than the configuration allows."""
    limit = settings.dead_letter_alert()
    if limit is None:
        return
    allowed, window = limit
    counts = log.count_letters(since=time.time() - window)
    total = sum(counts.values())
    # A lease that nobody renews and that everybody asks for under another name is taken once in a window,
    # whichever keeper comes first and however often it is restarted.
    if total <= allowed or log.acquire(_LEASE, str(uuid.uuid4()), window) is None:
        return
    worst = sorted(counts.items(), key=lambda one: -one[1])[:_NAMED]
    logger.warning(
        "%s letters=%d in %.0f s, allowed=%d: %s; see `windsock dlq list`",
        ACCUMULATING,
        total,
        window,
        allowed,
        ", ".join(f"{name}={count}" for name, count in worst),
    )
    facts = {"letters": total, "allowed": allowed, "seconds": window, "watchers": counts}
    _call_back({"alert": ACCUMULATING, **facts})


def _call_back(alert: dict[str, Any]) -> None:
    target = settings.alert_callback()
    if not target:
        return
    try:
        module, _, name = target.partition(":")
        if not name:
            raise WindsockError("write package.module:function")
        getattr(importlib.import_module(module), name)(alert)
    except Exception:
        # The function is the user's; the warning above has been given in any case.
        logger.exception("windsock.alert.callback_failed callback=%s", target)

"""What a user declares becomes a spec, and a mistake is refused when the Dag is parsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from windsock.spec import SpecError, WatcherSpec
from windsock.values import WindsockError
from windsock.watchers import EventWatcher, FilesAssetWatcher, WebhookAssetWatcher


def spec(watcher: EventWatcher) -> WatcherSpec:
    """What the watcher's trigger carries."""
    return watcher.trigger.spec


def test_options_become_the_spec() -> None:
    """Durations are read, source options are told from the watcher's own, a Path is text."""
    files = spec(
        FilesAssetWatcher(
            "drops", path=Path("/in"), pattern="*.csv", dedupe="24h", batch=10, within="5s", retry_delay="1m"
        )
    )
    assert files.kind == "files"
    assert files.options == {"path": "/in", "pattern": "*.csv"}
    assert (files.dedupe, files.batch.size, files.batch.within, files.retry_delay) == (86400.0, 10, 5.0, 60.0)


def test_nothing_said_is_the_default() -> None:
    """Dedup for ever, at once, three attempts."""
    hook = spec(WebhookAssetWatcher("hook", auth="none"))
    assert (hook.dedupe, hook.batch.immediate, hook.max_attempts) == (None, True, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "auth"),
        ({"auth": "none", "where": "data.total >"}, "where"),
        ({"auth": "none", "within": "soon"}, "'soon' is not a duration"),
        ({"auth": "none", "batch": 0}, "at least one event"),
        ({"auth": "none", "colour": "red"}, "colour"),
        ({"auth": "none", "max_attempts": 0}, "max_attempts"),
        ({"auth": "hmac"}, "conn_id"),
    ],
)
def test_mistakes_are_refused(options: dict[str, object], message: str) -> None:
    """Every mistake names the option; an open webhook must say that it is open."""
    with pytest.raises(WindsockError, match=message):
        WebhookAssetWatcher("hook", **options)


def test_a_bad_name_is_refused() -> None:
    """A name is part of an address."""
    with pytest.raises(SpecError, match="watcher name"):
        WebhookAssetWatcher("my hook/../", auth="none")

"""`windsock status`: how the watchers and the Dags behind them are."""

from __future__ import annotations

import msgspec

from windsock.cli.reading import LogOption, reading
from windsock.cli.terminal import AsJson, ago, iso, plain_errors, print_json, print_table, wants_json
from windsock.log.records import Subscription, WatcherHealth

__all__ = ["status"]


def status(log: LogOption = None, as_json: AsJson = None) -> None:
    """How every watcher and every Dag's subscription is.

    A watcher's reader is running, paused (too many events wait), in backoff
    (its source cannot be reached; the error says why) or stopped.

    A subscription counts the Dag's events: pending ones wait for a run,
    claimed ones are in a run, dead ones were set aside.

    \b
    Examples:
      windsock status
      windsock status --log .windsock/demo/airflow/windsock.db
      windsock status --json | jq '.watchers[] | select(.state != "running")'
    """
    with plain_errors(), reading(log) as (opened, url):
        watchers, places = opened.health(), opened.subscriptions()
    if wants_json(as_json):
        print_json(
            {
                "log": url,
                "watchers": [_watcher(health) for health in watchers],
                "subscriptions": [msgspec.to_builtins(place) for place in places],
            }
        )
        return
    print_table(
        ("watcher", "asset", "reader", "heard of", "last event", *_COUNTERS, "error"),
        [
            (
                health.watcher,
                health.asset,
                health.state or "never started",
                ago(health.heartbeat_at),
                ago(health.last_event_at),
                *(getattr(health, counter.removeprefix("# ")) for counter in _COUNTERS),
                health.error,
            )
            for health in watchers
        ],
        title=f"Watchers in {url}",
        empty=f"No watcher is known to {url}: schedule a Dag on an asset with a watcher, and unpause it.",
    )
    if watchers:
        print_table(
            ("Dag", "watcher", "asset", "state", "# pending", "# claimed", "# dead"),
            [
                (
                    place.dag_id,
                    place.watcher,
                    place.asset,
                    _state(place),
                    place.pending,
                    place.claimed,
                    place.dead,
                )
                for place in places
            ],
            title="Subscriptions",
            empty="No Dag subscribes to them.",
        )


_COUNTERS = ("# logged", "# backlog", "# duplicates", "# filtered", "# dead")


def _watcher(health: WatcherHealth) -> dict[str, object]:
    times = {"heartbeat_at": iso(health.heartbeat_at), "last_event_at": iso(health.last_event_at)}
    return {**msgspec.to_builtins(health), **times}


def _state(place: Subscription) -> str:
    if not place.active:
        return "gone"
    return "paused" if place.paused else "active"

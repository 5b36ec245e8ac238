"""Correlations and expectations on a real Airflow: Dags run on what several watchers bring together."""

from __future__ import annotations

import pytest

from live.field import Field

pytestmark = pytest.mark.live


def reads(field: Field, watcher: str) -> bool:
    """Whether the watcher's rule is being read for."""
    return any(health.watcher == watcher and health.state == "running" for health in field.log.health())


def begun(field: Field, dag_id: str, watcher: str) -> None:
    """Wait until the Dag has its place and the rule is read for."""
    field.stack.wait_for(field.subscribed(dag_id), 120, f"the subscription of {dag_id}")
    field.stack.wait_for(lambda: reads(field, watcher), 60, f"the reader of {watcher}")


def test_orders_and_payments_make_one_run_with_both(field: Field) -> None:
    """Two webhooks in either order: the Dag gets each pair once, and the legs themselves wake nobody."""
    begun(field, "joins", "paid-orders")
    for n in range(5):
        legs = [
            ("joined-orders", {"order": n, "item": f"i{n}"}),
            ("joined-payments", {"order": n, "by": "card"}),
        ]
        for watcher, data in legs if n % 2 else reversed(legs):
            assert field.post(watcher, data).status_code == 202
    assert field.post("joined-orders", {"order": 99, "item": "unpaid"}).status_code == 202
    field.stack.wait_for(lambda: len(field.had("joins")) >= 5, 120, "the joined events")
    field.stack.wait_for(field.settled("joins"), 60, "the joined events to be settled")
    assert sorted(field.had("joins")) == [[str(n), f"i{n}", "card"] for n in range(5)]
    [place] = field.log.subscriptions(dag_id="joins")
    assert place.watcher == "paid-orders"


def test_a_device_that_falls_silent_starts_a_run(field: Field) -> None:
    """After its last heartbeat a silent device is told once."""
    begun(field, "hears_silence", "silent-devices")
    for _ in range(3):
        assert field.post("heartbeats", {"device": "pump"}).status_code == 202
    field.stack.wait_for(lambda: field.had("hears_silence"), 120, "the silence")
    field.stack.wait_for(field.settled("hears_silence"), 60, "the silence to be settled")
    assert field.had("hears_silence") == ["pump"]


def test_a_broken_expectation_starts_a_run(field: Field) -> None:
    """Orders that do not come are a breach that a Dag runs on; the next order ends it."""
    begun(field, "hears_breaches", "broken-expectations")
    late, over = "joined-orders:late", "joined-orders:recovered"
    field.stack.wait_for(lambda: late in field.had("hears_breaches"), 120, "the breach")
    assert field.post("joined-orders", {"order": 1000, "item": "x"}).status_code == 202
    field.stack.wait_for(lambda: over in field.had("hears_breaches"), 120, "the recovery")

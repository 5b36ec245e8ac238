"""The page on event sourcing: what its Dags declare does what the page says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from docs.pages import ROOT, blocks
from windsock.events import Event
from windsock.log.records import Write
from windsock.log.sqlite import SqliteLog
from windsock.sourcing import IllegalTransition, state
from windsock.spec import WatcherSpec

PAGE = ROOT / "docs" / "howto" / "event-sourcing.md"


@pytest.fixture
def log() -> Iterator[SqliteLog]:
    """A log with a watcher that keeps a history."""
    log = SqliteLog(":memory:")
    log.register(WatcherSpec(name="sales", kind="memory", history=True), source="s")
    yield log
    log.close()


def declared(name: str) -> Any:
    """What one of the page's Dag files declares under a name."""
    (block,) = [
        block
        for block in blocks(PAGE, "python")
        if f"\n{name} = " in block.text or f"def {name}(" in block.text
    ]
    space: dict[str, Any] = {"__name__": f"page_{name}"}
    exec(compile(block.text, str(block), "exec"), space)
    return space[name]


def told(log: SqliteLog, type: str, subject: str, **data: Any) -> Event:
    """An event that the log has."""
    event = Event.make(data, source="shop", type=type, subject=subject)
    [appended] = log.append([Write(watcher="sales", events=[event])])
    return appended.new[0]


def test_the_balance(log: SqliteLog) -> None:
    """The first reducer adds up amounts."""
    for amount in (5, -7):
        told(log, "booked", "a1", amount=amount)
    assert state("a1", declared("balance"), log=log) == -2


def test_the_order(log: SqliteLog) -> None:
    """The machine goes where the page says, and not elsewhere."""
    order = declared("order").using(log)
    assert order.apply(told(log, "order.paid", "o1", amount=5)).after == "paid"
    assert order.apply(told(log, "order.cancelled", "o1")).after == "cancelled"
    with pytest.raises(IllegalTransition):
        order.apply(told(log, "order.shipped", "o1"))


def test_the_saga(log: SqliteLog, capsys: pytest.CaptureFixture[str]) -> None:
    """It ends done, once."""
    ship = declared("ship").using(log)
    event = told(log, "parcel", "p1")
    assert [ship.run(event).state for _ in range(2)] == ["done", "done"]
    assert capsys.readouterr().out.count("charged once") == 1


def test_the_steps(log: SqliteLog) -> None:
    """Each step can be done by itself, and taken back."""
    book = declared("book").using(log)
    event = told(log, "trip", "t1")
    assert book.do("flight", event) == {"seat": "12A"}
    assert book.compensate(event).state == "compensated"


def test_the_customers(log: SqliteLog) -> None:
    """The read model counts orders by customer."""
    customers = declared("customers").using(log)
    for customer, total in (("ada", 5), ("bob", 1), ("ada", 6)):
        told(log, "order.created", "o", customer=customer, total=total)
    customers.update()
    assert customers.rows(prefix="a") == {"ada": {"orders": 2, "total": 11}}

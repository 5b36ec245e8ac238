"""A run's outcome settles its events after the commit, never before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from windsock.airflow import listener
from windsock.events import Event
from windsock.log import Log, LogUnavailable
from windsock.log.records import Write
from windsock.spec import WatcherSpec


class Base(DeclarativeBase):
    """The test's own tables."""


class Run(Base):
    """Stands for Airflow's DagRun: what the listener uses of it."""

    __tablename__ = "run"
    run_id: Mapped[str] = mapped_column(String, primary_key=True)
    dag_id: Mapped[str] = mapped_column(String)


@pytest.fixture
def session() -> Iterator[Session]:
    """A session of a scheduler."""
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()


@pytest.fixture
def claimed(log: Log, monkeypatch: pytest.MonkeyPatch) -> Log:
    """A log in which the run r1 has one event."""
    monkeypatch.setattr(listener, "_not_before", 0.0)
    log.register(WatcherSpec(name="w", kind="memory"), source="s")
    log.append([Write(watcher="w", events=[Event.make(source="s", type="t")])])
    assert len(log.claim(["w"], "d", "r1")) == 1
    return log


def counts(log: Log) -> tuple[int, int]:
    """(claimed, pending) of the only subscription."""
    (place,) = log.subscriptions()
    return place.claimed, place.pending


def test_success_settles_after_the_commit(claimed: Log, session: Session) -> None:
    """Nothing happens before the commit; then the events are done."""
    run = Run(run_id="r1", dag_id="d")
    session.add(run)
    session.flush()
    listener.on_dag_run_success(run, "")
    assert counts(claimed) == (1, 0)
    session.commit()
    assert counts(claimed) == (0, 0)


def test_failure_returns_the_events(claimed: Log, session: Session) -> None:
    """A failed run's events come back."""
    run = Run(run_id="r1", dag_id="d")
    session.add(run)
    session.flush()
    listener.on_dag_run_failed(run, "")
    session.commit()
    assert counts(claimed) == (0, 1)


def test_a_rollback_settles_nothing(claimed: Log, session: Session) -> None:
    """What Airflow did not commit did not happen, also not at the session's next commit."""
    run = Run(run_id="r1", dag_id="d")
    session.add(run)
    session.flush()
    listener.on_dag_run_success(run, "")
    session.rollback()
    session.commit()
    assert counts(claimed) == (1, 0)


def test_a_log_that_is_away_does_not_hold_up_the_scheduler(
    claimed: Log, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first failure is logged; for a minute the log is not asked again: the keeper settles the run."""
    asked = []

    def away(*args: object, **kwargs: object) -> int:
        asked.append(args)
        raise LogUnavailable("no route to host")

    monkeypatch.setattr(claimed, "settle", away)
    for n in range(3):
        run = Run(run_id=f"r{n}", dag_id="d")
        session.add(run)
        session.flush()
        listener.on_dag_run_success(run, "")
        session.commit()
    assert len(asked) == 1

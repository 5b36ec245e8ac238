"""`windsock events`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import Result

from windsock.cli.reading import moment
from windsock.events import WindsockError


def found(records: Any) -> list[str]:
    """The ids of the listed events, in their order."""
    return [record["event"]["id"] for record in records]


def test_events_are_listed_newest_first_with_what_became_of_them(windsock_json: Callable[..., Any]) -> None:
    """Into a pipe goes one JSON record per event: the event, its watcher, its Dag, its state, its run."""
    records = windsock_json("events")
    assert found(records) == ["f1", "o3", "o2", "o1"]
    last = records[-1]
    assert last["event"]["data"] == {"item": "kite"}
    assert (last["watcher"], last["asset"], last["dag_id"], last["state"]) == (
        "orders",
        "shop/orders",
        "fulfil",
        "done",
    )
    assert last["run_id"].endswith("QEHh3SGe")
    assert last["received_at"] == "2023-11-14T22:13:20+00:00"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--id", "o2"], ["o2"]),
        (["--key", "brick"], ["o2"]),
        (["--type", "windsock.file.created"], ["f1"]),
        (["--watcher", "files"], ["f1"]),
        (["--asset", "shop/orders"], ["o3", "o2", "o1"]),
        (["--dag", "fulfil"], ["o3", "o2", "o1"]),
        (["--state", "dead"], ["o2"]),
        (["--state", "pending", "--dag", "fulfil"], ["o3"]),
        (["--since", "2023-11-14T22:20:00Z"], ["f1", "o3"]),
        (["--since", "1h"], []),
        (["--text", "kite"], ["o3", "o1"]),
        (["--text", "100%"], ["o3"]),
        (["--limit", "2"], ["f1", "o3"]),
        (["--text", "kite", "--state", "done"], ["o1"]),
    ],
)
def test_every_option_narrows_the_list(
    windsock_json: Callable[..., Any], options: list[str], expected: list[str]
) -> None:
    """Options pick exactly the events that they name, alone and together."""
    assert found(windsock_json("events", *options)) == expected


def test_the_table_shows_names_as_they_are(windsock: Callable[..., Result]) -> None:
    """A table has one line per event; what looks like markup in an event's text is text."""
    result = windsock("events", "--table", "--watcher", "orders")
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if " o1 " in line)
    assert [part in line for part in ("order", "fulfil", "done", "09:16:53…3SGe")] == [True] * 4
    assert " [bold]a.csv " in windsock("events", "--table", "--watcher", "files").stdout


def test_an_empty_answer_is_a_sentence_or_an_empty_list(
    windsock: Callable[..., Result], windsock_json: Callable[..., Any]
) -> None:
    """Nothing found is not an error."""
    assert windsock("events", "--table", "--id", "nobody").stdout.startswith("No such event in sqlite:///")
    assert windsock_json("events", "--id", "nobody") == []


def test_a_time_that_is_none_is_refused(windsock: Callable[..., Result]) -> None:
    """`--since` that is neither a duration nor a date ends with one line that shows how to write it."""
    result = windsock("events", "--since", "yesterday")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "'yesterday'" in result.stderr
    assert "24h" in result.stderr


def test_moments_are_durations_ago_or_dates() -> None:
    """Both ways to write a time give epoch seconds."""
    now = dt.datetime.now(dt.UTC).timestamp()
    assert now - 3601 <= moment("1h") <= now - 3599
    assert moment("2023-11-14T22:13:20+00:00") == 1_700_000_000.0
    with pytest.raises(WindsockError, match="is no time"):
        moment("soon")

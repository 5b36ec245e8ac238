"""Exercise 11.3, the file part: the trigger and its sensor on a real directory."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow._shared.module_loading import import_string
from airflow.models.trigger import Trigger
from airflow.sdk.exceptions import AirflowException, AirflowSensorTimeout, AirflowSkipException, TaskDeferred

from windsock.airflow import file_pattern
from windsock.airflow.file_pattern import find_files
from windsock.sensors import FilePatternSensor
from windsock.spec import SpecError
from windsock.testing.clock import VirtualClock
from windsock.triggers import FilePatternTrigger


class Time(VirtualClock):
    """A clock whose sleep passes at once; ``then`` are things that happen during each sleep in turn."""

    def __init__(self, *then: Any) -> None:
        super().__init__()
        self.slept: list[float] = []
        self._then = list(then)

    async def sleep(self, span: float) -> None:
        """Let the time pass."""
        self.slept.append(span)
        self.advance(span)
        if self._then:
            self._then.pop(0)()


async def fire(trigger: FilePatternTrigger) -> Any:
    """Run a trigger to its end; the payload of its only event."""
    (event,) = [event async for event in trigger.run()]
    return event.payload


def sensor(pattern: str, **options: Any) -> FilePatternSensor:
    """The sensor as a Dag has it."""
    return FilePatternSensor(task_id="wait", pattern=pattern, **options)


def test_serialize() -> None:
    """Criterion: Custom trigger implements serialize() correctly. Airflow's own round trip loses nothing."""
    trigger = FilePatternTrigger("/data/*.csv", min_files=3, poll_interval="5s", timeout=60, settle="2s")
    row = Trigger.from_object(trigger)
    again = import_string(row.classpath)(**row.kwargs)
    assert type(again) is FilePatternTrigger
    assert again.serialize() == trigger.serialize()
    assert (again.min_files, again.settle, again.deadline) == (3, 2.0, trigger.deadline)


def test_defaults_are_those_of_the_exercise() -> None:
    """The trigger can be made from a pattern alone, waits for one file, and for ever."""
    kwargs = FilePatternTrigger("/data/*.csv").serialize()[1]
    assert list(inspect.signature(FilePatternTrigger).parameters)[:3] == [
        "pattern",
        "min_files",
        "poll_interval",
    ]
    assert (kwargs["min_files"], kwargs["poll_interval"], kwargs["deadline"]) == (1, 10.0, None)


async def test_run_is_an_async_generator(tmp_path: Path) -> None:
    """Criterion: Trigger run() is an async generator. It looks until there are enough files."""
    assert inspect.isasyncgenfunction(FilePatternTrigger.run)
    time = Time((tmp_path / "b.csv").touch, (tmp_path / "a.csv").touch)
    event = await fire(FilePatternTrigger(f"{tmp_path}/*.csv", min_files=2, clock=time, sleep=time.sleep))
    assert event["status"] == "success"
    assert event["files"] == [f"{tmp_path}/a.csv", f"{tmp_path}/b.csv"]
    assert time.slept == [10, 10]


async def test_timeout(tmp_path: Path) -> None:
    """Criterion: Trigger handles timeout gracefully; a rebuilt trigger goes on with what is left."""
    (tmp_path / "a.csv").touch()
    time = Time()
    trigger = FilePatternTrigger(f"{tmp_path}/*.csv", min_files=2, timeout=60, clock=time)
    time.advance(45)
    _, kwargs = trigger.serialize()
    event = await fire(FilePatternTrigger(**kwargs, clock=time, sleep=time.sleep))
    assert (event["status"], event["elapsed"]) == ("timeout", 60.0)
    assert event["files"] == [f"{tmp_path}/a.csv"]
    assert f"only 1 of 2 files matched {tmp_path}/*.csv within 60 s" in event["message"]
    assert time.slept == [10, 5]


async def test_the_search_does_not_hold_up_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a slow disk is searched, other triggers run."""
    searching, released = threading.Event(), threading.Event()

    def search(*_: Any) -> list[str]:
        searching.set()
        assert released.wait(10), "the event loop was held up"
        return ["/data/a.csv"]

    monkeypatch.setattr(file_pattern, "find_files", search)
    running = asyncio.create_task(fire(FilePatternTrigger("/data/*.csv")))
    assert await asyncio.to_thread(searching.wait, 10)
    released.set()
    assert (await running)["files"] == ["/data/a.csv"]


def test_what_counts_as_a_file(tmp_path: Path) -> None:
    """``**`` goes into directories; directories, hidden names and dangling links do not count."""
    for name in ("one.csv", "x/two.csv", "x/y/three.csv", ".hidden.csv", "x/.part.csv", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "dangling.csv").symlink_to(tmp_path / "nowhere")
    names = ["one.csv", "x/two.csv", "x/y/three.csv"]
    assert find_files(f"{tmp_path}/**/*.csv") == [f"{tmp_path}/{name}" for name in names]
    assert find_files(f"{tmp_path}/*.csv") == [f"{tmp_path}/one.csv"]
    assert find_files(f"{tmp_path}/absent/*.csv") == []


def test_a_file_that_still_changes_does_not_count(tmp_path: Path) -> None:
    """With ``settle`` a file counts once it has rested, even if a copy has set its time back."""
    file = tmp_path / "copy.csv"
    file.touch()
    os.utime(file, (0, 0))
    changed = file.stat().st_ctime
    assert find_files(f"{tmp_path}/*", settle=5, clock=lambda: changed + 4.9) == []
    assert find_files(f"{tmp_path}/*", settle=5, clock=lambda: changed + 5.1) == [str(file)]
    assert find_files(f"{tmp_path}/*", settle=0, clock=lambda: changed) == [str(file)]


def test_a_name_that_is_not_text_can_be_stored(tmp_path: Path) -> None:
    """The event is JSON whatever bytes a name has, since a triggerer dies of one that is not."""
    try:
        Path(os.fsdecode(bytes(tmp_path) + b"/\xff.csv")).touch()
    except OSError as reason:
        pytest.skip(f"this file system refuses such names: {reason}")
    (path,) = find_files(f"{tmp_path}/*.csv")
    assert json.dumps(path).encode() == json.dumps(f"{tmp_path}/\\udcff.csv").encode()


def test_sensor_uses_the_trigger(tmp_path: Path) -> None:
    """Criterion: Deferrable operator uses the trigger. It looks at once, then defers with a deadline."""
    with pytest.raises(TaskDeferred) as deferred:
        sensor(f"{tmp_path}/*", min_files=2, poll_interval="2s", timeout=100, settle=3).execute({})
    trigger = deferred.value.trigger
    assert isinstance(trigger, FilePatternTrigger)
    assert (trigger.min_files, trigger.poll_interval, trigger.timeout, trigger.settle) == (2, 2.0, 100.0, 3.0)
    assert trigger.deadline is not None
    assert deferred.value.method_name == "execute_complete"
    assert deferred.value.timeout > timedelta(seconds=100), (
        "Airflow's own timeout leaves ours time to explain"
    )


def test_files_that_are_there_defer_nothing(tmp_path: Path) -> None:
    """When there are enough files at once, the task returns them without a triggerer."""
    (tmp_path / "a.csv").touch()
    assert sensor(f"{tmp_path}/*").execute({}) == [f"{tmp_path}/a.csv"]


def test_execute_complete() -> None:
    """Criterion: execute_complete handles trigger events: files, a timeout (or a skip), a strange one."""
    late = {"event": {"status": "timeout", "message": "too late"}}
    assert sensor("/d/*").execute_complete({}, {"status": "success", "files": ["/d/a"]}) == ["/d/a"]
    with pytest.raises(AirflowSensorTimeout, match="too late"):
        sensor("/d/*").resume_execution("execute_complete", late, {})
    with pytest.raises(AirflowSkipException):
        sensor("/d/*", soft_fail=True).resume_execution("execute_complete", late, {})
    with pytest.raises(AirflowException, match="does not know"):
        sensor("/d/*").execute_complete({}, {"status": "odd"})


@pytest.mark.parametrize("options", [{"min_files": 0}, {"poll_interval": 0}, {"timeout": 0}, {"settle": -1}])
def test_mistakes_are_refused_when_the_dag_is_parsed(options: dict[str, Any]) -> None:
    """Criterion: Error scenarios handled properly. A wrong option is an error of the Dag file."""
    with pytest.raises(SpecError):
        sensor("/data/*", **options)


def test_a_relative_pattern_is_refused() -> None:
    """Criterion: Error scenarios handled properly. Worker and triggerer have no common working directory."""
    with pytest.raises(SpecError, match="must be absolute"):
        sensor("data/*.csv").execute({})

"""The files source on a real directory."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
import pytest
import watchfiles

from windsock.events import Event, SourceError, WindsockError
from windsock.sources import make_source
from windsock.sources._files_tree import Entry, Scan, Tree
from windsock.sources.base import Cursor
from windsock.sources.files import FilesConfig, FilesSource
from windsock.testing.sources import Reader

ALL = ("created", "modified", "deleted")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory that is watched."""
    path = tmp_path / "in"
    path.mkdir()
    return path


def put(path: Path, content: str = "content") -> Path:
    """A finished file, there from one moment to the next."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name("unfinished.tmp")
    unfinished.write_text(content)
    return unfinished.rename(path)


def move_away(directory: Path, *, replace: bool) -> None:
    """Take the directory from its place, and put another there."""
    directory.rename(directory.with_name("elsewhere"))
    if replace:
        directory.mkdir()


@asynccontextmanager
async def reading(directory: Path, cursor: Cursor | None = None, **options: Any) -> AsyncIterator[Reader]:
    """A files source, quick to settle, connected and read inside."""
    options = {"settle": 0.05, "rescan": 0.2, **options}
    source = FilesSource(FilesConfig(path=str(directory), **options))
    async with asyncio.timeout(60):
        await source.connect(cursor)
        try:
            yield Reader(source)
        finally:
            await source.close()


def seen(events: list[Event]) -> list[tuple[str, str | None]]:
    """What happened to which file."""
    return [(event.type.removeprefix("windsock.file."), event.subject) for event in events]


async def test_an_event_says_which_file(directory: Path) -> None:
    """The event leads to the file and carries its size, time and a key for ordering."""
    put(directory / "sub" / "a b.csv", "12345")
    os.utime(directory / "sub" / "a b.csv", ns=(0, 1_700_000_000_123_456_789))
    async with reading(directory, pattern="**/*.csv") as reader:
        (event,) = await reader.read(1)
    assert event == Event(
        id="sub/a%20b.csv#1700000000123456789-5",
        source=f"file://{directory}",
        type="windsock.file.created",
        time=dt.datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=dt.UTC),
        subject="sub/a b.csv",
        key="sub/a b.csv",
        data={
            "path": f"{directory}/sub/a b.csv",
            "name": "a b.csv",
            "directory": f"{directory}/sub",
            "uri": f"file://{directory}/sub/a%20b.csv",
            "size": 5,
            "mtime": "2023-11-14T22:13:20.123456+00:00",
        },
    )
    assert Event.decode(event.encode()) == event


async def test_a_file_that_settles_is_lag(directory: Path) -> None:
    """A file that is not announced yet is counted as waiting."""
    put(directory / "a")
    async with reading(directory, settle=3600) as reader:
        assert await reader.source.lag() == 1


async def test_an_overwritten_file_is_modified_under_a_new_id(directory: Path) -> None:
    """The same name with new content is another event of the same key."""
    put(directory / "a", "one")
    async with reading(directory) as reader:
        await reader.read(1)
        put(directory / "a", "other")
        first, second = await reader.read(2)
    assert seen([first, second]) == [("created", "a"), ("modified", "a")]
    assert first.id != second.id
    assert first.key == second.key == "a"


async def test_a_renamed_file_is_created_under_its_new_name(directory: Path) -> None:
    """By default a rename is one event; the old name passes unsaid."""
    old = put(directory / "old")
    async with reading(directory) as reader:
        await reader.read(1)
        old.rename(directory / "new")
        assert seen(await reader.read(2)) == [("created", "old"), ("created", "new")]


async def test_deletions_are_announced_when_asked_for(directory: Path) -> None:
    """With deleted among the events, a removed file and the old name of a renamed one are announced."""
    removed, renamed = put(directory / "a"), put(directory / "b")
    async with reading(directory, events=ALL) as reader:
        await reader.read(2)
        removed.unlink()
        await reader.read(3)
        renamed.rename(directory / "c")
        events = await reader.read(5)
    assert seen(events)[:3] == [("created", "a"), ("created", "b"), ("deleted", "a")]
    assert set(seen(events)[3:]) == {("deleted", "b"), ("created", "c")}
    assert len({event.id for event in events}) == 5


async def test_a_restart_announces_only_what_came_since(directory: Path) -> None:
    """After a restart old files stay quiet, new, changed and moved-in ones with old mtimes do not."""
    for name in ("a", "b", "c"):
        put(directory / name)
    outside = put(directory.parent / "outside")
    os.utime(outside, (1, 1))
    async with reading(directory) as reader:
        await reader.read(3)
        cursor = reader.cursor()
    put(directory / "b", "changed")
    outside.rename(directory / "old")
    async with reading(directory, cursor) as reader:
        await reader.read(2)
        put(directory / "last")
        events = await reader.read(3)
    assert [event.subject for event in events] == ["old", "b", "last"]


async def test_a_changed_mode_is_a_duplicate_at_most(directory: Path) -> None:
    """A file whose mode changed while nobody watched keeps its id, so the log knows it."""
    path = put(directory / "a")
    async with reading(directory) as reader:
        (first,) = list(await reader.read(1))
        cursor = reader.cursor()
    path.chmod(0o600)
    put(directory / "b")
    async with reading(directory, cursor) as reader:
        await reader.until(lambda reader: any(event.subject == "b" for event in reader.events))
    assert {event.id for event in reader.events if event.subject == "a"} <= {first.id}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["a.csv", "b.txt"]),
        ({"pattern": "*.csv"}, ["a.csv"]),
        ({"pattern": "*.csv", "recursive": True}, ["a.csv", "x/a.csv", "x/y/a.csv"]),
        ({"pattern": "**/*.csv"}, ["a.csv", "x/a.csv", "x/y/a.csv"]),
        ({"pattern": "**/*.csv", "recursive": True}, ["a.csv", "x/a.csv", "x/y/a.csv"]),
        ({"pattern": "*/*.csv"}, ["x/a.csv"]),
        ({"pattern": "x/**/a.csv"}, ["x/a.csv", "x/y/a.csv"]),
        ({"pattern": "x/**"}, ["x/a.csv", "x/y/a.csv"]),
        ({"pattern": "**/y/*"}, ["x/y/a.csv"]),
        ({"pattern": "[ab].*"}, ["a.csv", "b.txt"]),
        ({"pattern": "?.txt"}, ["b.txt"]),
        ({"pattern": "**", "hidden": True}, [".dot/a", ".hidden", "a.csv", "b.txt", "x/a.csv", "x/y/a.csv"]),
        ({"ignore": ["*.csv"]}, ["b.txt", "c.part", "c.tmp", "c~"]),
        ({"ignore": []}, ["a.csv", "b.txt", "c.part", "c.tmp", "c~"]),
    ],
)
async def test_which_files_count(directory: Path, options: dict[str, Any], expected: list[str]) -> None:
    """Pattern, recursion, hidden and ignored names choose the files that are announced."""
    names = ["a.csv", "b.txt", "c.tmp", "c.part", "c~", ".hidden", ".dot/a", "x/a.csv", "x/y/a.csv"]
    for name in names:
        put(directory / name)
    source = make_source("files", {"path": str(directory), "settle": 0, **options})
    async with asyncio.timeout(60):
        await source.connect(None)
        events = await Reader(source).read(len(expected))
        assert await source.lag() == 0
        await source.close()
    assert sorted(event.subject or "" for event in events) == expected


async def test_a_file_counts_when_it_loses_its_temporary_name(directory: Path) -> None:
    """What is written under a temporary name is announced when it is renamed into place."""
    unfinished = directory / "a.csv.part"
    unfinished.write_text("content")
    async with reading(directory) as reader:
        assert await reader.source.lag() == 0
        unfinished.rename(directory / "a.csv")
        assert seen(await reader.read(1)) == [("created", "a.csv")]


async def test_a_new_subdirectory_is_watched(directory: Path) -> None:
    """A directory made while watching is looked into, at any depth."""
    async with reading(directory, recursive=True) as reader:
        put(directory / "2024" / "01" / "a")
        await reader.read(1)
        put(directory / "2024" / "02" / "b")
        events = await reader.read(2)
    assert [event.subject for event in events] == ["2024/01/a", "2024/02/b"]


async def test_links(directory: Path) -> None:
    """A link to a file is a file, also a new one to an old file; links to directories are not followed."""
    target = put(directory.parent / "target")
    async with reading(directory, recursive=True) as reader:
        put(directory / "sub" / "a")
        await reader.read(1)
        cursor = reader.cursor()
    (directory / "sub" / "loop").symlink_to(directory, target_is_directory=True)
    (directory / "link").symlink_to(target)
    (directory / "broken").symlink_to(directory / "nowhere")
    os.mkfifo(directory / "pipe")
    async with reading(directory, cursor, recursive=True) as reader:
        await reader.read(1)
        put(directory / "last")
        events = await reader.read(2)
    assert [event.subject for event in events] == ["link", "last"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"new\nline", "new\nline"),
        ("bücher 📚.csv".encode(), "bücher 📚.csv"),
        (b"caf\xe9", "caf\\xe9"),
        (b" ", " "),
        (b"#?%25", "#?%25"),
    ],
)
async def test_odd_names(directory: Path, name: bytes, shown: str) -> None:
    """Any file name becomes an event that JSON can hold, and its uri leads back to the file."""
    put(directory / os.fsdecode(name), "here")
    async with reading(directory) as reader:
        (event,) = await reader.read(1)
    assert event.subject == shown
    assert Event.decode(event.encode()) == event
    path = unquote_to_bytes(event.data["uri"].removeprefix("file://"))
    assert path == os.fsencode(directory) + b"/" + name
    assert os.stat(path).st_size == event.data["size"]


async def test_a_very_long_path_has_a_short_id(directory: Path) -> None:
    """An id stays fit for a database index however deep the file lies, and differs between files."""
    deep = directory / "/".join("d" * 200 for _ in range(4))
    put(deep / "a")
    put(deep / "b")
    for name in "ab":
        os.utime(deep / name, (1, 1))
    async with reading(directory, recursive=True) as reader:
        first, second = await reader.read(2)
    assert len(first.id) < 100
    assert first.id != second.id


async def test_an_impossible_mtime_is_a_dead_letter(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose time is no date is set aside with its path; its neighbour goes on."""
    put(directory / "good")
    scan = Tree.scan

    def with_odd_file(self: Tree, stopped: Callable[[], bool]) -> Scan | None:
        found = scan(self, stopped)
        if found:
            found.files["odd"] = Entry("odd", 10**24, 1, 1)
        return found

    monkeypatch.setattr(Tree, "scan", with_odd_file)
    async with reading(directory) as reader:
        await reader.until(lambda reader: bool(reader.events and reader.dead))
    assert [event.subject for event in reader.events] == ["good"]
    assert [dead.body for dead in reader.dead] == [os.fsencode(directory / "odd")]
    assert "no date" in reader.dead[0].reason


async def test_notifications_wake_the_source(directory: Path) -> None:
    """A new file is found long before the next rescan."""
    async with reading(directory, rescan=3600) as reader:
        waiting = asyncio.create_task(reader.read(1))
        put(directory / "a")
        assert seen(await waiting) == [("created", "a")]


async def test_rescans_find_what_notifications_do_not_tell(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When the system gives no watch, files are found all the same, and the log says how to get one."""

    def no_watch(*_: object, **__: object) -> None:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(watchfiles, "watch", no_watch)
    with caplog.at_level(logging.WARNING, "windsock"):
        async with reading(directory, recursive=True) as reader:
            put(directory / "a")
            await reader.read(1)
            put(directory / "sub" / "b")
            events = await reader.read(2)
    assert [event.subject for event in events] == ["a", "sub/b"]
    (warning,) = (record.getMessage() for record in caplog.records if record.name.startswith("windsock"))
    assert "fs.inotify.max_user_watches" in warning


async def test_a_missing_directory_is_found_when_it_appears(directory: Path) -> None:
    """Connect names the directory and the remedy, and succeeds as soon as the directory is there."""
    source = FilesSource(FilesConfig(path=str(directory / "later"), settle=0.05))
    with pytest.raises(SourceError, match="later does not exist: create it"):
        await source.connect(None)
    put(directory / "later" / "a")
    async with asyncio.timeout(60):
        await source.connect(None)
        assert seen(await Reader(source).read(1)) == [("created", "a")]
        await source.close()


async def test_a_file_is_no_directory(directory: Path) -> None:
    """A path that leads to a file is refused with the remedy."""
    source = FilesSource(FilesConfig(path=str(put(directory / "a"))))
    with pytest.raises(SourceError, match="is not a directory: name its directory"):
        await source.connect(None)


@pytest.mark.parametrize("replace", [False, True], ids=["removed", "replaced"])
async def test_a_directory_that_vanishes_while_it_is_read(directory: Path, replace: bool) -> None:
    """A read does not go on silently when its directory is gone or another stands in its place."""
    async with reading(directory) as reader:
        move_away(directory, replace=replace)
        with pytest.raises(SourceError, match="was replaced" if replace else "does not exist"):
            await reader.next()


async def test_the_lag_of_a_vanished_directory_is_unknown(directory: Path) -> None:
    """Asking for the lag never fails, for it is asked beside the read."""
    async with reading(directory, rescan=1e-9) as reader:
        assert await reader.source.lag() == 0
        move_away(directory, replace=False)
        assert await reader.source.lag() is None


async def test_an_unreadable_top_directory_is_a_source_error(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing permission and a broken disk are told apart, each with its remedy."""
    source = FilesSource(FilesConfig(path=str(directory)))
    for error, remedy in ((PermissionError(13, "denied"), "permission"), (OSError(5, "I/O error"), "mount")):
        monkeypatch.setattr(os, "scandir", _raising(error))
        with pytest.raises(SourceError, match=f"{directory} .*: .*{remedy}"):
            await source.connect(None)


async def test_an_unreadable_subdirectory_is_skipped(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files are not seen and not taken for deleted; the others go on, and one warning says so."""
    put(directory / "closed" / "a")
    async with reading(directory, recursive=True, events=ALL) as reader:
        await reader.read(1)
        monkeypatch.setattr(os, "scandir", _raising(PermissionError(13, "denied"), only="closed"))
        with caplog.at_level(logging.WARNING, "windsock"):
            put(directory / "b")
            await reader.read(2)
            put(directory / "c")
            events = await reader.read(3)
    assert seen(events) == [("created", "closed/a"), ("created", "b"), ("created", "c")]
    (warning,) = (record.getMessage() for record in caplog.records if record.name.startswith("windsock"))
    assert "closed" in warning


async def test_read_needs_connect(directory: Path) -> None:
    """A source that was not connected says so, and knows no lag."""
    source = FilesSource(FilesConfig(path=str(directory)))
    assert await source.lag() is None
    with pytest.raises(SourceError, match="call connect first"):
        await Reader(source).next()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "missing required field `path`"),
        ({"path": "in"}, "not absolute"),
        ({"path": "/in", "pattern": "/a"}, "must stay inside"),
        ({"path": "/in", "pattern": "../*"}, "must stay inside"),
        ({"path": "/in", "settle": -1}, r"settle"),
        ({"path": "/in", "rescan": 0}, r"rescan"),
        ({"path": "/in", "events": []}, r"events"),
        ({"path": "/in", "events": ["moved"]}, r"events"),
        ({"path": "/in", "glob": "*"}, "unknown field `glob`"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    """An option that cannot be meant is refused when the watcher is made."""
    with pytest.raises(WindsockError, match=message):
        make_source("files", options)


def test_the_config_is_plain_values(directory: Path) -> None:
    """A config can be read back from its own plain values."""
    config = FilesConfig(path=str(directory), events=("deleted",))
    assert msgspec.convert(msgspec.to_builtins(config), FilesConfig) == config


def _raising(error: OSError, only: str = "") -> Callable[[str], Any]:
    scandir = os.scandir

    def raising(path: str) -> Any:
        if str(path).endswith(only):
            raise error
        return scandir(path)

    return raising

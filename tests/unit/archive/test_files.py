"""Files by path and URL: on a disk, in memory, in a real S3."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from pyarrow.fs import S3FileSystem

from windsock.archive import ParquetArchive, archived
from windsock.archive.files import Files
from windsock.connections import Connection, fixed
from windsock.erasure import erase
from windsock.events import Event
from windsock.log.archive import ArchiveError
from windsock.log.records import Scan, Write
from windsock.log.sqlite import SqliteLog
from windsock.spec import Retention, WatcherSpec
from windsock.testing.services import Unavailable
from windsock.testing.services.seaweedfs import SeaweedFS


def round_trip(files: Files, path: str) -> None:
    """Write, write again, read, remove, remove again."""
    files.put(path, b"old")
    files.put(path, b"new")
    assert files.get(path) == b"new"
    files.drop(path)
    files.drop(path)
    with pytest.raises(ArchiveError, match=path.rpartition("/")[2]):
        files.get(path)


def test_a_local_path(tmp_path: Path) -> None:
    """Directories are made, and nothing but the file is left."""
    path = tmp_path / "watcher=a" / "day=b" / "c.parquet"
    files = Files()
    files.put(str(path), b"x")
    assert [found.name for found in path.parent.iterdir()] == ["c.parquet"]
    round_trip(files, str(path))
    round_trip(files, f"file://{path}")


def test_what_a_kill_left_goes_with_the_file(tmp_path: Path) -> None:
    """A half-written neighbour is removed with the file that it was to become."""
    (tmp_path / ".c.parquet.0123abcd").write_bytes(b"half")
    (tmp_path / "d.parquet").write_bytes(b"other")
    Files().drop(str(tmp_path / "c.parquet"))
    assert [found.name for found in tmp_path.iterdir()] == ["d.parquet"]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """A place that cannot be written is an error that names the file, and no rest stays."""
    (tmp_path / "taken.parquet").mkdir()
    with pytest.raises(ArchiveError, match=r"taken\.parquet"):
        Files().put(str(tmp_path / "taken.parquet"), b"x")
    assert [found.name for found in tmp_path.iterdir()] == ["taken.parquet"]


def test_what_fsspec_reaches() -> None:
    """Any URL that fsspec knows will do."""
    round_trip(Files(), f"memory://{uuid.uuid4().hex}/watcher=a/c.parquet")


def test_an_unknown_scheme_is_told() -> None:
    """The error names the file and the scheme."""
    with pytest.raises(ArchiveError, match=r"nowhere://a/b.*nowhere"):
        Files().put("nowhere://a/b", b"x")


def test_a_connection_that_is_not_there_is_told() -> None:
    """The part before the @ is the id of a Connection."""
    with pytest.raises(ArchiveError, match="'absent' is not defined"):
        Files(fixed()).put("s3://absent@bucket/x", b"x")


@pytest.fixture(scope="module")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """A real S3 server."""
    try:
        SeaweedFS.install()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with SeaweedFS(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture
def bucket(seaweedfs: SeaweedFS) -> str:
    """A new bucket."""
    connection = seaweedfs.connection()
    admin = S3FileSystem(
        access_key=connection.login,
        secret_key=connection.password,
        region="us-east-1",
        endpoint_override=seaweedfs.url,
        allow_bucket_creation=True,
    )
    name = f"archive-{uuid.uuid4().hex[:8]}"
    admin.create_dir(name)
    return name


def test_s3_by_connection(seaweedfs: SeaweedFS, bucket: str) -> None:
    """A bucket is reached with the credentials and the address of the Connection that the URL names."""
    connection: Connection = seaweedfs.connection("my_aws")
    round_trip(Files(fixed(connection)), f"s3://my_aws@{bucket}/events/watcher=a/c.parquet")
    wrong = Connection(conn_id="wrong", login="who", password="ever", extra=connection.extra)
    with pytest.raises(ArchiveError, match=r"c\.parquet"):
        Files(fixed(wrong)).put(f"s3://wrong@{bucket}/c.parquet", b"x")


def test_a_log_is_archived_to_s3(seaweedfs: SeaweedFS, bucket: str) -> None:
    """Events go to the bucket, are read from there, and are erased there."""
    archive = ParquetArchive(fixed(seaweedfs.connection("my_aws")))
    limits = Retention(count=1, archive=f"s3://my_aws@{bucket}/windsock")
    with closing(SqliteLog(":memory:")) as log:
        log.register(WatcherSpec(name="orders", kind="memory", retention=limits), source="m")
        events = [Event(id=name, source="s", type="t", key=name) for name in "abc"]
        log.append([Write(watcher="orders", events=events)])
        assert log.purge(before=0.0, archive=archive) == 2
        assert [stored.event for _, stored in archived(log, archive, Scan())] == [
            msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(events[:2], 1)
        ]
        receipt = erase(log, key="a", archive=archive)
        assert list(receipt.files.values()) == [1]
        assert [stored.event.id for _, stored in archived(log, archive, Scan())] == ["b"]


def test_it_is_used_where_no_loop_runs(tmp_path: Path) -> None:
    """The keeper's thread has no event loop; a thread beside one works as well."""

    async def beside() -> None:
        connections = fixed(Connection(conn_id="c"))
        await asyncio.to_thread(round_trip, Files(connections), f"memory://c@{uuid.uuid4().hex}/x/y.parquet")

    asyncio.run(beside())

"""Files by path or URL: written whole, read whole, removed.

A path is a local file: written beside its place, synced, renamed. ``s3://`` is read and written by pyarrow
itself; every other URL by fsspec, which names the package that it needs. An object store shows an object
only when it is complete, so there is nothing to rename.

Credentials come from the Connection that stands before the ``@``, as in ``s3://my_aws@bucket/events``, else
from where the client finds them itself: environment, profile, instance.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from windsock.archive.parquet import arrow
from windsock.connections import Connection, Connections, from_environment
from windsock.events import WindsockError
from windsock.log.archive import ArchiveError

__all__ = ["Files"]


class Store(Protocol):
    """A place for whole files, by path; a read of one that is not there raises FileNotFoundError."""

    def put(self, path: str, content: bytes) -> None:
        """Write durably."""

    def get(self, path: str) -> bytes:
        """Read."""
        ...

    def drop(self, path: str) -> None:
        """Remove, if it is there."""


class Files:
    """See the module's docstring. Remembers the clients that it has opened."""

    def __init__(self, connections: Connections = from_environment) -> None:
        self._connections = connections
        self._stores: dict[tuple[str, str], Store] = {}

    def put(self, path: str, content: bytes) -> None:
        with _told(path):
            store, place = self._open(path)
            store.put(place, content)

    def get(self, path: str) -> bytes:
        with _told(path):
            store, place = self._open(path)
            return store.get(place)

    def drop(self, path: str) -> None:
        with _told(path):
            store, place = self._open(path)
            store.drop(place)

    def _open(self, url: str) -> tuple[Store, str]:
        """The store that has the file, and the file's name there."""
        scheme, found, rest = url.partition("://")
        if not found:
            return _Disk(), url
        if scheme == "file":
            return _Disk(), urlsplit(url).path
        place, slash, path = rest.partition("/")
        conn_id, _, place = place.rpartition("@")
        if (scheme, conn_id) not in self._stores:
            connection = asyncio.run(self._await(conn_id)) if conn_id else None
            self._stores[scheme, conn_id] = (_s3 if scheme == "s3" else _fsspec(scheme))(connection)
        return self._stores[scheme, conn_id], f"{place}{slash}{path}"

    async def _await(self, conn_id: str) -> Connection:
        return await self._connections(conn_id)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Whatever goes wrong names the file."""
    try:
        yield
    except WindsockError as error:
        raise ArchiveError(f"{path}: {error}") from error
    except Exception as error:  # each client has errors of its own, without a common base
        raise ArchiveError(f"{path}: {type(error).__name__}: {error}") from error


class _Disk:
    def put(self, path: str, content: bytes) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
        try:
            with beside.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def get(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def drop(self, path: str) -> None:
        target = Path(path)
        for left in target.parent.glob(f".{target.name}.*"):
            left.unlink(missing_ok=True)
        target.unlink(missing_ok=True)


class _Arrow:
    """A filesystem of pyarrow's own."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def put(self, path: str, content: bytes) -> None:
        with self._filesystem.open_output_stream(path) as target:
            target.write(content)

    def get(self, path: str) -> bytes:
        with self._filesystem.open_input_stream(path) as source:
            return bytes(source.read())

    def drop(self, path: str) -> None:
        try:
            self._filesystem.delete_file(path)
        except FileNotFoundError:
            pass  # it was never written, or somebody was faster


class _Fsspec:
    """A filesystem of fsspec."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def put(self, path: str, content: bytes) -> None:
        self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._filesystem.pipe_file(path, content)

    def get(self, path: str) -> bytes:
        return bytes(self._filesystem.cat_file(path))

    def drop(self, path: str) -> None:
        try:
            self._filesystem.rm_file(path)
        except FileNotFoundError:
            pass  # it was never written, or somebody was faster


def _s3(connection: Connection | None) -> Store:
    arrow()
    from pyarrow.fs import S3FileSystem

    if connection is None:
        return _Arrow(S3FileSystem())
    options = {
        "access_key": connection.login or connection.get("aws_access_key_id"),
        "secret_key": connection.password or connection.get("aws_secret_access_key"),
        "session_token": connection.get("aws_session_token"),
        "role_arn": connection.get("role_arn"),
        "region": connection.get("region_name"),
        "endpoint_override": connection.get("endpoint_url"),
    }
    return _Arrow(S3FileSystem(**{name: value for name, value in options.items() if value}))


def _fsspec(scheme: str) -> Callable[[Connection | None], Store]:
    def store(connection: Connection | None) -> Store:
        try:
            import fsspec
        except ImportError as error:
            raise ArchiveError("this URL needs fsspec: pip install 'windsock[archive]'") from error
        return _Fsspec(fsspec.filesystem(scheme, **(_options(scheme, connection) if connection else {})))

    return store


def _options(scheme: str, connection: Connection) -> dict[str, Any]:
    """What the filesystem of a scheme calls the fields of a Connection."""
    if scheme in ("gs", "gcs"):
        key = connection.get("keyfile_dict") or connection.get("key_path")
        options = {"token": key, "project": connection.get("project")}
    elif scheme in ("abfs", "abfss", "az", "adl"):
        options = {
            "account_name": connection.host or connection.login,
            "account_key": connection.password,
            "connection_string": connection.get("connection_string"),
        }
    else:
        options = {
            "host": connection.host,
            "port": connection.port,
            "username": connection.login,
            "password": connection.password,
            **connection.extra,
        }
    return {name: value for name, value in options.items() if value}

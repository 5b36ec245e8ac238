"""SFTP over the contract suite, on a real OpenSSH."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast

import asyncssh
import msgspec
import pytest

from windsock.connections import Connection, fixed
from windsock.events import Event, SourceError
from windsock.sources import make_source
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import Service
from windsock.testing.services.openssh import OpenSSH
from windsock.testing.sources import (
    Missing,
    ReaderProcesses,
    ServerFaults,
    SourceContract,
    Unreachable,
    WrongCredentials,
)
from windsock.testing.wire import Wire


class TestSftp(SourceContract, ReaderProcesses, ServerFaults, Unreachable, WrongCredentials, Missing):
    """A directory behind OpenSSH."""

    kind = "sftp"
    max_cursor = 400_000  # it lists every file that is there

    @pytest.fixture(autouse=True)
    def system(self, serve: Callable[[str], Service], tmp_path: Path) -> Iterator[None]:
        self.server = cast(OpenSSH, serve("openssh"))
        self.directory = tmp_path / "in"
        self.directory.mkdir()
        self.numbers = count()
        self.more: dict[str, Any] = {}
        with Wire(LOOPBACK, self.server.port) as self.wire:
            self.known = msgspec.structs.replace(self.server.connection("files"), port=self.wire.port)
            yield

    def options(self) -> dict[str, Any]:
        path = str(self.directory)
        return {"conn_id": "files", "path": path, "settle": 0.05, "interval": 0.2, **self.more}

    def connections(self) -> list[Connection]:
        return [self.known]

    def with_extra(self, **extra: Any) -> Connection:
        return msgspec.structs.replace(self.known, extra={**self.known.extra, **extra})

    async def produce(self, count: int) -> list[str]:
        names = [f"{next(self.numbers):06}" for _ in range(count)]
        await asyncio.to_thread(self._write, names)
        return names

    def _write(self, names: list[str]) -> None:
        for name in names:
            unfinished = self.directory / f"{name}.tmp"
            unfinished.write_bytes(b"content")
            unfinished.rename(self.directory / name)

    def identity(self, event: Event) -> str:
        return event.subject or ""

    async def restart_server(self) -> None:
        self.server.restart()

    def unreachable(self) -> tuple[dict[str, Any], list[Connection]]:
        return self.options(), [msgspec.structs.replace(self.known, port=free_port())]

    def wrong_credentials(self) -> tuple[dict[str, Any], list[Connection]]:
        stranger = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
        return self.options(), [self.with_extra(key_file="", private_key=stranger)]

    def missing(self) -> tuple[dict[str, Any], list[Connection]]:
        return {**self.options(), "path": str(self.directory / "not-there")}, self.connections()

    async def test_what_an_event_says(self) -> None:
        """An event has the path, the size and the time of the file, and a uri that leads to it."""
        self.more = {"recursive": True}
        (self.directory / "shop").mkdir()
        file = self.directory / "shop" / "ördérs 1.csv"
        file.write_bytes(b"12345")
        os.utime(file, (1_700_000_000, 1_700_000_000))
        async with self.reading() as reader:
            (event,) = await reader.read(1)
        assert event.type == "windsock.file.created"
        assert event.source == f"sftp://files{self.directory}"
        assert event.key == event.subject == "shop/ördérs 1.csv"
        assert event.data == {
            "path": str(file),
            "name": "ördérs 1.csv",
            "directory": str(file.parent),
            "uri": f"sftp://{LOOPBACK}:{self.wire.port}{self.directory}/shop/%C3%B6rd%C3%A9rs%201.csv",
            "size": 5,
            "mtime": "2023-11-14T22:13:20+00:00",
        }

    async def test_a_partial_upload_is_held_back(self) -> None:
        """A file that grows from look to look is announced when it is done, with its final size."""
        self.more = {"settle": 0.6, "interval": 0.1}
        async with self.reading() as reader:
            waiting = asyncio.create_task(reader.read(1))
            with (self.directory / "large.csv").open("wb", buffering=0) as upload:
                for size in range(1, 6):
                    upload.write(b"x" * 1000)
                    while await reader.source.lag() != 1 or self._seen(reader.source) < size * 1000:
                        await asyncio.sleep(0.01)
                    assert not waiting.done()
            (event,) = await waiting
        assert event.data["size"] == 5000

    async def test_a_changed_file_is_announced_again(self) -> None:
        """A new version of a file is a new event, also when it was written while nobody watched."""
        file = self.directory / "orders.csv"
        file.write_bytes(b"1")
        async with self.reading() as reader:
            await reader.read(1)
            file.write_bytes(b"12")
            events = list(await reader.read(2))
            cursor = reader.cursor()
        file.write_bytes(b"123")
        async with self.reading(cursor) as reader:
            events += await reader.read(1)
        assert [event.type.rpartition(".")[2] for event in events] == ["created", "modified", "modified"]
        assert [event.data["size"] for event in events] == [1, 2, 3]
        assert len({event.id for event in events}) == 3

    async def test_a_file_with_an_old_mtime(self) -> None:
        """A file whose sender kept its old mtime is not missed, though newer ones were announced before."""
        async with self.reading() as reader:
            await self.produce(2)
            await reader.read(2)
            cursor = reader.cursor()
        late = self.directory / "late.csv"
        late.write_bytes(b"1")
        os.utime(late, (1_000_000_000, 1_000_000_000))
        async with self.reading(cursor) as reader:
            (event,) = await reader.read(1)
        assert event.subject == "late.csv"

    async def test_patterns_and_names_to_ignore(self) -> None:
        """Only what matches counts; unfinished names, hidden files and other directories do not."""
        self.more = {"pattern": "*/[ab]*.csv"}
        for name in ("x", "y"):
            (self.directory / name).mkdir()
        names = ("x/a.csv", "y/b.csv", "x/c.csv", "a.csv", "x/b.csv.part", "x/.a.csv", "x/a.txt")
        for name in names:
            (self.directory / name).write_bytes(b"1")
        async with self.reading() as reader:
            await reader.read(2)
            (self.directory / "y" / "a.csv").write_bytes(b"1")
            events = await reader.read(3)
        assert {event.subject for event in events} == {"x/a.csv", "y/b.csv", "y/a.csv"}

    async def test_links(self) -> None:
        """A link to a file counts as the file, one to a directory or to nowhere is left out."""
        (self.directory / "real").mkdir()
        (self.directory / "real" / "file").write_bytes(b"12345")
        (self.directory / "a").symlink_to(self.directory / "real" / "file")
        (self.directory / "b").symlink_to(self.directory / "real")
        (self.directory / "c").symlink_to(self.directory / "nowhere")
        async with self.reading() as reader:
            (event,) = await reader.read(1)
        assert (event.subject, event.data["size"]) == ("a", 5)

    async def test_a_name_that_is_not_utf8(self) -> None:
        """A name in another encoding is shown with escapes, and its uri leads back to it."""
        (self.directory / os.fsdecode(b"caf\xe9")).write_bytes(b"1")
        async with self.reading() as reader:
            (event,) = await reader.read(1)
        assert event.subject == "caf\\xe9"
        assert event.data["uri"].endswith("/caf%E9")

    async def test_a_path_that_is_a_file(self) -> None:
        """A file instead of a directory is an error that says what to name."""
        (self.directory / "file").write_bytes(b"1")
        self.more = {"path": str(self.directory / "file")}
        with pytest.raises(SourceError, match="is a file: name its directory"):
            async with self.reading():
                pass

    async def test_the_host_key_in_known_hosts(self, tmp_path: Path) -> None:
        """A known_hosts file that has the key lets us in, and one without it does not."""
        line = f"[{LOOPBACK}]:{self.wire.port} {self.server.host_key}\n"
        (tmp_path / "known").write_text(line)
        (tmp_path / "empty").write_text("")
        self.known = self.with_extra(host_key="", known_hosts=str(tmp_path / "known"))
        async with self.reading():
            pass
        self.known = self.with_extra(known_hosts=str(tmp_path / "empty"))
        with pytest.raises(
            SourceError, match=r"is not known \(it shows SHA256:\S+\): if it is the right one"
        ):
            async with self.reading():
                pass

    async def test_the_fingerprint_of_the_host_key(self) -> None:
        """The fingerprint in the extra is compared, and a wrong one is refused."""
        right = asyncssh.import_public_key(self.server.host_key).get_fingerprint()
        self.known = self.with_extra(host_key="", host_key_fingerprint=right)
        async with self.reading():
            pass
        self.known = self.with_extra(host_key_fingerprint="SHA256:" + "A" * 43)
        with pytest.raises(SourceError, match="is not known"):
            async with self.reading():
                pass

    async def test_another_host_key(self) -> None:
        """A server that shows another key than the one in the extra is refused."""
        other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
        self.known = self.with_extra(host_key=other)
        with pytest.raises(SourceError, match="is not known"):
            async with self.reading():
                pass

    async def test_no_check_must_be_asked_for(self, caplog: pytest.LogCaptureFixture) -> None:
        """Without a check of the host key it works with a warning, and not beside a host key."""
        self.known = self.with_extra(no_host_key_check="true")
        with pytest.raises(SourceError, match="remove one"):
            async with self.reading():
                pass
        self.known = self.with_extra(host_key="")
        with caplog.at_level(logging.WARNING):
            async with self.reading():
                pass
        assert "windsock.sftp.unchecked" in caplog.text

    @staticmethod
    def _seen(source: Any) -> int:
        """The size of the only file that waits, as of the last look."""
        waiting = source._watch._changes._waiting.values()
        return max((found.entry.size for found in waiting), default=0)


class _Guard(asyncssh.SSHServer):
    """Lets one user in, by password."""

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == ("shop", "opensesame")


class TestSftpLogins:
    """What an ordinary user's OpenSSH cannot check, on asyncssh's own server."""

    @pytest.fixture
    async def server(self, tmp_path: Path) -> AsyncIterator[Connection]:
        host, self.user = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
        authorized = asyncssh.import_authorized_keys(self.user.export_public_key().decode())
        listening = await asyncssh.listen(
            LOOPBACK,
            0,
            server_factory=_Guard,
            server_host_keys=[host],
            authorized_client_keys=authorized,
            sftp_factory=True,
        )
        yield Connection(
            conn_id="files",
            host=LOOPBACK,
            port=listening.get_port(),
            login="shop",
            extra={"host_key": host.export_public_key().decode()},
        )
        listening.close()
        await listening.wait_closed()

    async def connect(self, connection: Connection, path: Path, **extra: Any) -> None:
        known = msgspec.structs.replace(connection, extra={**connection.extra, **extra})
        source = make_source("sftp", {"conn_id": "files", "path": str(path)}, fixed(known))
        try:
            await source.connect(None)
        finally:
            await source.close()

    async def test_a_password(self, server: Connection, tmp_path: Path) -> None:
        """The right password lets us in; a wrong one is refused and not shown."""
        await self.connect(msgspec.structs.replace(server, password="opensesame"), tmp_path)
        with pytest.raises(SourceError, match="refused the login of 'shop'") as refused:
            await self.connect(msgspec.structs.replace(server, password="sesame"), tmp_path)
        assert "sesame" not in str(refused.value)

    async def test_a_key_with_a_passphrase(self, server: Connection, tmp_path: Path) -> None:
        """An encrypted key opens with its passphrase, as text and as a file, and says so if it does not."""
        key = self.user.export_private_key(passphrase="opensesame", rounds=1, ignore_few_rounds=True).decode()
        (tmp_path / "key").write_text(key)
        await self.connect(server, tmp_path, private_key=key, private_key_passphrase="opensesame")
        await self.connect(server, tmp_path, key_file=str(tmp_path / "key"), passphrase="opensesame")
        for wrong in ({"private_key_passphrase": "sesame"}, {}):
            with pytest.raises(SourceError, match="the private key of connection 'files' cannot be read"):
                await self.connect(server, tmp_path, private_key=key, **wrong)

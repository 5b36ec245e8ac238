"""S3 by listing: a bucket of a real server, listed whole."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

from windsock.connections import Connection
from windsock.sources._aws import client
from windsock.testing.services.seaweedfs import SeaweedFS

__all__ = ["Bench"]

PARALLEL = 32


class Bench:
    """A server, and a new bucket for each measurement."""

    kind = "s3"

    def __init__(self, directory: Path) -> None:
        SeaweedFS.install()
        self._server = SeaweedFS(directory)
        self._server.start()
        self.fresh()

    def fresh(self) -> None:
        """Go on with a new bucket, which :meth:`fill` makes."""
        self._bucket = f"bench-{uuid.uuid4().hex[:12]}"

    def options(self) -> dict[str, Any]:
        return {"conn_id": "s3_bench", "bucket": self._bucket, "prefix": "in/", "interval": 1.0}

    def connections(self) -> list[Connection]:
        return [self._server.connection("s3_bench")]

    async def fill(self, count: int) -> None:
        """Small objects: a listing does not read what is in them."""
        numbers = iter(range(count))

        async def work(s3: Any) -> None:
            for number in numbers:
                await s3.put_object(Bucket=self._bucket, Key=f"in/{number:07}.json", Body=b"{}")

        async with client("s3", self._server.connection("s3_bench")) as s3:
            await s3.create_bucket(Bucket=self._bucket)
            await asyncio.gather(*(work(s3) for _ in range(PARALLEL)))

    async def bare(self, count: int) -> None:
        """The client's own paginator."""
        listed = 0
        async with client("s3", self._server.connection("s3_bench")) as s3:
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix="in/")
            async for page in pages:
                listed += len(page.get("Contents", ()))
        if listed != count:
            raise RuntimeError(f"{listed} of {count} objects were listed")

    def close(self) -> None:
        self._server.forget()

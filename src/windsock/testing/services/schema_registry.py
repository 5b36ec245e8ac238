"""Apicurio Registry, which speaks the API of Confluent's schema registry; from Maven Central, in memory."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK
from windsock.testing.services import maven
from windsock.testing.services.base import Service

__all__ = ["SchemaRegistry"]

_ARCHIVE = "io.apicurio:apicurio-registry-app:3.0.9:tar.gz:all"  # the last one that runs on Java 17
_JAVA = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_API = "apis/ccompat/v7"


class SchemaRegistry(Service):
    """One schema registry; what it holds is gone when it stops."""

    name = "schema_registry"
    default_port = 8081

    @classmethod
    def install(cls) -> None:
        maven.archive(cls.name, _ARCHIVE)

    @classmethod
    def installed(cls) -> bool:
        return maven.fetched(cls.name)

    @property
    def url(self) -> str:
        """The address of the Confluent API."""
        return f"http://{LOOPBACK}:{self.port}/{_API}"

    def command(self) -> Sequence[str | Path]:
        (program,) = maven.root(self.name).glob("*-runner.jar")
        return [
            "java", *_JAVA, f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={self.port}",
            "-Dquarkus.log.level=WARN", "-Dquarkus.http.access-log.enabled=false", "-jar", program,
        ]  # fmt: skip

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=2.0):  # noqa: S310 - our own server
                return True
        except OSError:
            return False

    def connection(self, conn_id: str) -> Connection:
        return Connection(conn_id=conn_id, conn_type="http", host=self.url)

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: Sequence[dict[str, Any]] = ()
    ) -> int:
        """Add a schema (text, or what becomes JSON) to a subject; its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = json.dumps({"schema": text, "schemaType": kind, "references": list(references)})
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{self.url}/subjects/{subject}/versions",
            body.encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=30.0) as answer:  # noqa: S310 - our own server
            number: int = json.load(answer)["id"]
            return number

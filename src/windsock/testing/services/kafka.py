"""Apache Kafka 4 in KRaft mode: one broker that is its own controller, from Maven Central.

It has four listeners, because a Kafka client talks to the address that the broker advertises, whatever
address it began with: a plain one (``port``), one that advertises the near end of a
:class:`~windsock.testing.wire.Wire` (``wire()``), one with SASL, and one with SASL over TLS.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from windsock.connections import Connection
from windsock.testing.processes import LOOPBACK, free_port
from windsock.testing.services import maven
from windsock.testing.services.base import Service
from windsock.testing.wire import Wire

__all__ = ["Kafka"]

_LIBRARIES = ("org.apache.kafka:kafka_2.13:4.1.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.2")
_CLUSTER = "V2luZHNvY2tLYWZrYVRlcw"
_JAVA = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""A small heap and the quick compiler: it starts in two seconds, and is not slower in short runs."""
_LOGGING = """status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c{1}: %m%n
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
"""


class Kafka(Service):
    """One Kafka broker."""

    name = "kafka"
    default_port = 9092

    user = "windsock"
    password = "kafka-secret"  # noqa: S105 - of a server that only tests reach

    def __init__(self, base: Path, *, port: int | None = None) -> None:
        super().__init__(base, port=port)
        self.sasl_port = free_port()
        self.tls_port = free_port()
        self.wired_port = free_port()
        """Where a wire to this broker must listen."""
        self._behind_wire = free_port()
        self._controller = free_port()

    @classmethod
    def install(cls) -> None:
        maven.libraries(cls.name, *_LIBRARIES)

    @classmethod
    def installed(cls) -> bool:
        return maven.fetched(cls.name)

    @property
    def authority(self) -> Path:
        """The certificate, as PEM, by which a client knows the broker on the TLS listener."""
        return self.directory / "authority.pem"

    def prepare(self) -> None:
        self._make_certificate()
        self._configure()
        subprocess.run(
            [*self._java("kafka.tools.StorageTool"), "format", "--config", "server.properties",
             "--cluster-id", _CLUSTER,
             "--add-scram", f"SCRAM-SHA-256=[name={self.user},password={self.password}]"],
            cwd=self.directory, check=True, capture_output=True,
        )  # fmt: skip

    def command(self) -> Sequence[str | Path]:
        self._configure()
        return [*self._java("kafka.Kafka"), "server.properties"]

    def ready(self) -> bool:
        if not super().ready():
            return False
        from confluent_kafka import KafkaException

        try:
            return bool(self.admin().list_topics(timeout=1.0).brokers)
        except KafkaException:
            return False

    def connection(self, conn_id: str) -> Connection:
        return self._connection(conn_id, self.port)

    def sasl_connection(self, conn_id: str, password: str | None = None) -> Connection:
        """A Connection to the listener that asks for a login, in the clear."""
        return self._connection(
            conn_id, self.sasl_port, login=self.user, password=password or self.password,
            **{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
        )  # fmt: skip

    def tls_connection(self, conn_id: str) -> Connection:
        """A Connection to the listener with a login over TLS."""
        return self._connection(
            conn_id, self.tls_port, login=self.user, password=self.password,
            **{"sasl.mechanism": "SCRAM-SHA-256", "ssl.ca.location": str(self.authority)},
        )  # fmt: skip

    def wired_connection(self, conn_id: str) -> Connection:
        """A Connection through the wire; see :meth:`wire`."""
        return self._connection(conn_id, self.wired_port)

    def wire(self) -> Wire:
        """A wire to the broker, which can be cut."""
        return Wire(LOOPBACK, self._behind_wire, listen=self.wired_port)

    def admin(self) -> Any:
        """A client that makes and removes topics."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": f"{LOOPBACK}:{self.port}", "log_level": 0})

    def producer(self, **settings: Any) -> Any:
        """A client that sends."""
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": f"{LOOPBACK}:{self.port}", "linger.ms": 0, **settings})

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Make a topic; underscores in the names of ``config`` stand for Kafka's dots."""
        from confluent_kafka.admin import NewTopic

        settings = {name.replace("_", "."): value for name, value in config.items()}
        admin = self.admin()  # kept until it is done: a client that is let go gives up
        for made in admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values():
            made.result(30)

    def send(self, topic: str, values: Iterable[bytes | None], **same: Any) -> None:
        """Send values to a topic, in this order, and wait until the broker has them."""
        producer = self.producer()
        for value in values:
            producer.produce(topic, value, **same)
        producer.flush(30)

    def _java(self, main: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        return ["java", *_JAVA, logging, "-cp", f"{maven.root(self.name)}/*", main]

    def _connection(self, conn_id: str, port: int, *, login: str | None = None,
                    password: str | None = None, **extra: str) -> Connection:  # fmt: skip
        return Connection(
            conn_id=conn_id, conn_type="kafka", host=LOOPBACK, port=port, login=login, password=password,
            extra=extra,
        )  # fmt: skip

    def _make_certificate(self) -> None:
        """A certificate for loopback that signs itself; Java's own tool makes it."""
        store = ["-keystore", "broker.p12", "-storetype", "PKCS12", "-storepass", self.password]
        for command in (
            ["-genkeypair", "-alias", "broker", "-keyalg", "EC", "-groupname", "secp256r1",
             "-dname", "CN=localhost", "-ext", f"SAN=DNS:localhost,IP:{LOOPBACK}", "-validity", "3650"],
            ["-exportcert", "-alias", "broker", "-rfc", "-file", self.authority],
        ):  # fmt: skip
            subprocess.run(["keytool", *command, *store], cwd=self.directory, check=True, capture_output=True)

    def _configure(self) -> None:
        listeners = {
            "PLAIN": (self.port, self.port, "PLAINTEXT"),
            "WIRED": (self._behind_wire, self.wired_port, "PLAINTEXT"),
            "SASL": (self.sasl_port, self.sasl_port, "SASL_PLAINTEXT"),
            "TLS": (self.tls_port, self.tls_port, "SASL_SSL"),
        }
        controller = f"{LOOPBACK}:{self._controller}"
        login = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{self.user}="{self.password}";'
        )
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAIN",
            "listeners": ",".join(
                [f"{name}://{LOOPBACK}:{own}" for name, (own, _, _) in listeners.items()]
                + [f"CONTROLLER://{controller}"]
            ),
            "advertised.listeners": ",".join(
                f"{name}://{LOOPBACK}:{told}" for name, (_, told, _) in listeners.items()
            ),
            "listener.security.protocol.map": ",".join(
                [f"{name}:{protocol}" for name, (_, _, protocol) in listeners.items()]
                + ["CONTROLLER:PLAINTEXT"]
            ),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "ssl.keystore.location": self.directory / "broker.p12",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": self.password,
            "log.dirs": self.directory / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
            "broker.session.timeout.ms": 2000,
            "broker.heartbeat.interval.ms": 500,
            "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
        }
        for name in ("sasl", "tls"):
            settings[f"listener.name.{name}.plain.sasl.jaas.config"] = login
            settings[f"listener.name.{name}.scram-sha-256.sasl.jaas.config"] = scram
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.directory / "server.properties").write_text("".join(lines))
        (self.directory / "log4j2.properties").write_text(_LOGGING)

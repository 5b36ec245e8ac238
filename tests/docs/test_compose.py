"""The compose file: every server that can be had as an image, on loopback only."""

from __future__ import annotations

import yaml

from docs.pages import ROOT
from windsock.testing.services import SERVICES

NO_IMAGE = {
    "kinesalite": "aws",
    "ministack": "aws",
    "moto": "aws",
    "openssh": "sftp",
    "redis7": "redis",
}
"""Servers that stand under another name there."""
NOWHERE = {"servicebus", "schema_registry"}
"""A peer of our own, and a registry that is a jar."""


def compose() -> dict[str, dict[str, object]]:
    """The services of the file."""
    found: dict[str, dict[str, object]] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    return found["services"]  # type: ignore[return-value]


def test_every_server_is_there() -> None:
    """What `make services` starts, people with Docker can start, too."""
    wanted = {NO_IMAGE.get(name, name) for name in SERVICES if name not in NOWHERE}
    assert wanted == set(compose())


def test_nothing_is_open_to_the_network() -> None:
    """Each published port is bound to loopback, and each image has a tag."""
    for name, service in compose().items():
        ports = service["ports"]
        assert isinstance(ports, list)
        assert all(str(port).startswith("127.0.0.1:") for port in ports), name
        assert ":" in str(service["image"]), name

"""Definitions from YAML, from a module and from the log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from windsock.airflow.watchers import EventWatcher
from windsock.definitions import definitions, load_watchers
from windsock.events import WindsockError
from windsock.log.sqlite import SqliteLog
from windsock.spec import SpecError, WatcherSpec

YAML = """
watchers:
  orders:
    kind: memory
    channel: shop
    where: data.total > 100
    batch: 500
    within: 5s
    quiet: 1s
    leading: true
    batch_bytes: 1000
    flush: data.last
    target: 2s
    dedupe: 24h
    new_dags: 2026-11-01T12:00:00Z
    schema: order.json
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A watchers.yaml with a schema beside it."""
    (tmp_path / "order.json").write_text('{"type": "object"}')
    (tmp_path / "watchers.yaml").write_text(YAML)
    return tmp_path / "watchers.yaml"


def test_yaml_gives_the_spec_of_the_watcher(path: Path) -> None:
    """The same definition as the watcher that Airflow would get, the schema's file read into it."""
    spec = load_watchers(path)["orders"]
    watcher = EventWatcher(
        "orders",
        kind="memory",
        channel="shop",
        where="data.total > 100",
        batch=500,
        within="5s",
        quiet="1s",
        leading=True,
        batch_bytes=1000,
        flush="data.last",
        target="2s",
        dedupe="24h",
        new_dags="2026-11-01 12:00:00+00:00",
        schema={"type": "object"},
    )
    assert spec.options == {"channel": "shop"}
    assert spec == watcher.trigger.spec


def test_every_option_of_a_watcher_is_known() -> None:
    """Whatever the spec has, YAML can say; nothing of it ends among the source's options."""
    from windsock.definitions import _BATCH, _OWN
    from windsock.spec import Batching

    assert set(_BATCH.values()) == set(Batching.__struct_fields__)
    assert set(WatcherSpec.__struct_fields__) == _OWN | {"name", "kind", "options", "batch"}


def test_reading_yaml_needs_no_airflow(path: Path) -> None:
    """Neither Airflow nor a Dag is imported."""
    script = (
        "import sys; from windsock.definitions import definitions; "
        f"print(list(definitions({str(path)!r})), 'airflow' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['orders'] False"


def test_a_mistake_names_the_line(path: Path) -> None:
    """File, line and watcher."""
    path.write_text("watchers:\n  orders:\n    kind: memory\n    batch: 0\n")
    with pytest.raises(SpecError, match=r"watchers\.yaml:2: orders: .*at least one event"):
        load_watchers(path)
    path.write_text("watchers:\n  orders:\n    kind: memory\n    channel: c\n    wher: data.x\n")
    with pytest.raises(SpecError, match="wher"):
        load_watchers(path)
    path.write_text("watchers:\n  orders:\n    batch: 1\n")
    with pytest.raises(SpecError, match="needs a kind"):
        load_watchers(path)


def test_a_module_and_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher, an asset or a list of a module; those that the log knows; anything else is refused."""
    (tmp_path / "shop_assets.py").write_text(
        "from airflow.sdk import Asset\n"
        "from windsock.watchers import EventWatcher\n"
        "orders = EventWatcher('orders', kind='memory', channel='c')\n"
        "stock = Asset('stock', watchers=[EventWatcher('stock', kind='memory', channel='c')])\n"
        "everything = [orders, stock]\n"
        "nothing = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert list(definitions("shop_assets:orders")) == ["orders"]
    assert list(definitions("shop_assets:stock")) == ["stock"]
    assert list(definitions("shop_assets:everything")) == ["orders", "stock"]
    for wrong in ("shop_assets:nothing", "shop_assets:missing", "no_such_module:x", "registered", "no.yaml"):
        with pytest.raises(WindsockError):
            definitions(wrong)
    log = SqliteLog(":memory:")
    log.register(WatcherSpec(name="files", kind="files"), source="s")
    assert list(definitions("registered", log)) == ["files"]
    log.close()

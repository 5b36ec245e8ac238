"""assets.yaml and watchers.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk import Asset

from windsock.airflow.declare import load_assets
from windsock.spec import SpecError

W = WATCHERS = """\
watchers:
  orders:
    kind: webhook
    auth: none
    where: data.total > 100
    batch: 500
    within: 5s
  drops:
    kind: files
    path: /in
    pattern: "*.csv"
"""
A = ASSETS = """\
assets:
  orders:
    uri: shop/orders
    group: shop
    extra: {owner: sales}
    watchers: [orders]
  reports:
    watchers: [drops]
  bare: {}
"""


def load(folder: Path, watchers: str = WATCHERS, assets: str = ASSETS) -> dict[str, Asset]:
    """Write both files and load them."""
    (folder / "watchers.yaml").write_text(watchers)
    (folder / "assets.yaml").write_text(assets)
    return load_assets(folder)


def test_declared_assets_are_those_of_python(tmp_path: Path) -> None:
    """Assets have their uri, group, extra and watchers, with every option in place."""
    assets = load(tmp_path)
    orders, reports, bare = assets["orders"], assets["reports"], assets["bare"]
    assert (orders.name, orders.uri, orders.group, orders.extra) == (
        "orders", "shop/orders", "shop", {"owner": "sales"},
    )  # fmt: skip
    spec = orders.watchers[0].trigger.spec
    assert (spec.kind, spec.where, spec.batch.size, spec.batch.within) == (
        "webhook",
        "data.total > 100",
        500,
        5.0,
    )
    assert reports.watchers[0].trigger.spec.options == {"path": "/in", "pattern": "*.csv"}
    assert bare.watchers == []


@pytest.mark.parametrize(
    ("watchers", "assets", "message"),
    [
        (W.replace("batch: 500", "batsh: 500"), A, r"watchers\.yaml:6: orders: .*batsh"),
        (W.replace("within: 5s", "within: soon"), A, r"watchers\.yaml:\d+: orders: .*'soon'.*duration"),
        (W.replace("total > 100", "total >"), A, r"watchers\.yaml:\d: orders: "),
        (W.replace("kind: files", "kind: flies"), A, r"watchers\.yaml:\d+: drops: unknown source 'flies'"),
        (W.replace("    kind: files\n", ""), A, r"watchers\.yaml:8: drops: needs a kind"),
        (W, A.replace("[drops]", "[drop]"), r"assets\.yaml:8: reports: no watcher 'drop'.*drops, orders"),
        (W, A.replace("[drops]", "[orders]"), r"assets\.yaml:8: reports: .*attached to 'orders'"),
        (W, A.replace("group: shop", "grup: shop"), r"assets\.yaml:4: orders: unknown option 'grup'"),
        (W, A.replace("uri: shop/orders", "uri: [1]"), r"assets\.yaml:3: orders: uri must be a str"),
        (W + "  orders:\n    kind: files\n", A, r"watchers\.yaml:12: 'orders' is given twice"),
        (W, "asets: {}", r"assets\.yaml:1: expected 'assets:'"),
        (W, "assets:\n  - orders", r"assets\.yaml:2: expected names with values"),
        (W, "assets: {", r"assets\.yaml: "),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_its_line(tmp_path: Path, watchers: str, assets: str, message: str) -> None:
    """The error names the file, the line and the block."""
    with pytest.raises(SpecError, match=message):
        load(tmp_path, watchers, assets)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """Without watchers.yaml the error says which file is missing."""
    with pytest.raises(SpecError, match=r"watchers\.yaml is missing"):
        load_assets(tmp_path)

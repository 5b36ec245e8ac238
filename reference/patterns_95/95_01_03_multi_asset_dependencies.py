"""95.1.3 Multi-Asset Dependencies

A shop window is rebuilt when prices and stock have both changed, or at once when a product is recalled.

- AND logic for Assets: ``AssetAll`` of ``prices`` and ``stock``, the same as ``prices & stock``.
- All Assets must update: the first of the two starts nothing; its events wait in the log, and the run that
  the second one starts gets both through ``claim``.
- Partial trigger patterns: ``CATALOGUE | recalls`` is enough with either side. ``complete`` looks at
  ``triggering_asset_events`` to see which side it was, and the window is rebuilt or only corrected.
- Asset grouping: ``group`` puts the two into one group in Airflow's asset pages, and ``CATALOGUE`` names
  them together in the code.
"""

from __future__ import annotations

import os
from typing import Any

from airflow.sdk import Asset, AssetAll, dag, task

from windsock import claim
from windsock.watchers import FilesAssetWatcher, WebhookAssetWatcher

FOLDER = os.environ.get("WINDSOCK_REFERENCE_INBOX", "/data/inbox") + "/multi_asset_dependencies"


def dropped(what: str) -> Asset:
    """An asset of the catalogue, fed by files."""
    name = f"multi_asset_{what}"
    watcher = FilesAssetWatcher(name=name, path=FOLDER, pattern=f"{what}-*.csv", settle=1)
    return Asset(name, group="catalogue", watchers=[watcher])


prices, stock = dropped("prices"), dropped("stock")
recalls = Asset(
    "multi_asset_recalls",
    watchers=[WebhookAssetWatcher(name="multi_asset_recalls", auth="hmac", conn_id="reference_shop")],
)
CATALOGUE = AssetAll(prices, stock)


@dag(
    dag_id="95_01_03_multi_asset_dependencies",
    schedule=CATALOGUE | recalls,
    max_active_runs=1,
    tags=["reference", "core", "intermediate", "success"],
    doc_md=__doc__,
)
def multi_asset_dependencies() -> None:
    @task
    def complete(triggering_asset_events: Any) -> bool:
        """Whether prices and stock have both changed."""
        return all(triggering_asset_events.get(asset) for asset in (prices, stock))

    @task
    def rebuild(everything: bool) -> dict[str, Any]:
        """What the shop window is made of now."""
        return {
            "window": "rebuilt" if everything else "corrected",
            "files": sorted(str(event.subject) for asset in (prices, stock) for event in claim(asset)),
            "recalled": [event.data["product"] for event in claim(recalls)],
        }

    rebuild(complete())


multi_asset_dependencies()

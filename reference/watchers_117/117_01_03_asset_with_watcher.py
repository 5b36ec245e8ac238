"""117.1.3 Asset Definition with Watcher

Prices come in two ways, as files from the wholesaler and as webhooks from the till. Both feed one asset, so
one Dag gets them all.

- Create Asset with attached AssetWatcher: ``prices`` carries two of them in ``watchers``; each has a name
  that is unique among all watchers.
- Configure URI and watcher together: the ``uri`` is the folder that ``FilesAssetWatcher`` watches, written
  once as ``FOLDER``. ``claim`` finds an asset's events by this URI.
- Handle asset-watcher lifecycle: ``schedule=[prices]`` keeps the watchers alive. While the Dag is paused
  its events wait in the log; unpause it and ``claim`` gets them; remove it and the readers stop.
- Test watcher registration on DAG parse: a wrong option is refused while this file is parsed. What the
  parse registered is checked by ``registered``, against what the file says.
"""

from __future__ import annotations

import os

from airflow.sdk import Asset, dag, task

from windsock import claim, get_log
from windsock.watchers import FilesAssetWatcher, WebhookAssetWatcher

FOLDER = os.environ.get("WINDSOCK_REFERENCE_INBOX", "/data/inbox") + "/asset_with_watcher"

prices = Asset(
    name="asset_with_watcher/prices",
    uri=f"file://{FOLDER}",
    group="catalogue",
    extra={"owner": "purchasing"},
    watchers=[
        FilesAssetWatcher(name="asset_with_watcher_files", path=FOLDER, pattern="*.json", settle=1),
        WebhookAssetWatcher(name="asset_with_watcher_till", auth="hmac", conn_id="reference_shop"),
    ],
)


@dag(
    dag_id="117_01_03_asset_with_watcher",
    schedule=[prices],
    max_active_runs=1,
    tags=["reference", "core", "beginner", "success"],
    doc_md=__doc__,
)
def asset_with_watcher() -> None:
    @task
    def registered() -> list[str]:
        """The asset's watchers that the log knows: those of this file, or the run fails."""
        known = {watcher.name for watcher in get_log().watchers(asset=prices.uri)}
        declared = {watcher.name for watcher in prices.watchers}
        if known != declared:
            raise RuntimeError(f"declared {declared}, registered {known}: was this file parsed again?")
        return sorted(known)

    @task
    def update() -> list[str]:
        """Take the run's events of both watchers, in the order in which they came."""
        return [f"{event.type}: {event.data['name']}" for event in claim(prices)]

    registered() >> update()


asset_with_watcher()

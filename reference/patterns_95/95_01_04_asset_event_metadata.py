"""95.1.4 Asset Event Metadata

Readings of a weather station arrive as CloudEvents; a summary of each batch travels on inside an asset
event, so that the next Dag needs no file and no database to know what happened.

- Extra metadata in events: ``yield Metadata(summaries, …)`` puts a small dictionary into the asset event.
- Accessing event data: ``claim`` gives ``subject``, ``time``, ``dataschema`` and ``extensions`` beside the
  ``data``; ``triggering_asset_events`` gives the ``extra`` of the updates that started a run.
- Event payload patterns: ``announced`` looks at what Windsock itself sends. The announcement only says
  where the events are (``count``, ``first``, ``up_to``); a few small ones are carried along under
  ``events``.
- Metadata schema: ``Summary`` is the contract between the two Dags, written once. ``read`` builds it from
  the ``extra``, so that a missing or unknown field fails there and not three tasks later.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from airflow.sdk import Asset, Metadata, dag, task
from airflow.sdk.exceptions import AirflowSkipException

from windsock import claim
from windsock.watchers import WebhookAssetWatcher

TAGS = ["reference", "core", "intermediate", "success"]

readings = Asset(
    "asset_event_metadata/readings",
    watchers=[
        WebhookAssetWatcher(name="asset_event_metadata", auth="hmac", conn_id="reference_shop", within="1s")
    ],
)
summaries = Asset("asset_event_metadata/summaries")


@dataclass(frozen=True)
class Summary:
    """What the asset events of ``summaries`` carry."""

    stations: list[str]
    schemas: list[str]
    firmware: list[str]
    low: float
    high: float


@dag(dag_id="95_01_04_asset_event_metadata", schedule=[readings], tags=TAGS, doc_md=__doc__)
def asset_event_metadata() -> None:
    @task
    def announced(triggering_asset_events: Any) -> list[int]:
        """How many events each announcement spoke of."""
        return [update.extra["payload"]["windsock"]["count"] for update in triggering_asset_events[readings]]

    @task(outlets=[summaries])
    def summarise() -> Any:
        """Tell the next Dag what this batch was like."""
        events = claim(readings)
        if not events:
            raise AirflowSkipException("nothing to tell")
        values = [event.data["celsius"] for event in events]
        summary = Summary(
            stations=sorted({str(event.subject) for event in events}),
            schemas=sorted({str(event.dataschema) for event in events}),
            firmware=sorted({str(event.extensions["firmware"]) for event in events}),
            low=min(values),
            high=max(values),
        )
        yield Metadata(summaries, asdict(summary))

    announced() >> summarise()


@dag(dag_id="95_01_04_asset_event_metadata_reader", schedule=[summaries], tags=TAGS, doc_md=__doc__)
def reader() -> None:
    @task
    def read(triggering_asset_events: Any) -> list[dict[str, Any]]:
        """The summaries, checked."""
        return [asdict(Summary(**update.extra)) for update in triggering_asset_events[summaries]]

    read()


asset_event_metadata()
reader()

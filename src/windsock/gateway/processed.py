"""What became of each event of a request, decided by the pipeline and the log, told to the sender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import Response

from windsock.gateway.intake import Intake
from windsock.log.records import Appended, Write
from windsock.pipeline import Pipeline
from windsock.runner import join_writes, writes_for

__all__ = ["Processed"]


@dataclass(frozen=True, slots=True)
class Processed:
    """A request's events after the pipeline: what to append, and how to tell the sender about each."""

    intake: Intake
    verdicts: Sequence[Write]
    """The pipeline's word on each event by itself."""

    @classmethod
    def by(cls, pipeline: Pipeline, intake: Intake) -> Processed:
        """Run the events through the pipeline, one by one, so that each has its own answer."""
        return cls(intake, [writes_for(pipeline, [event]) for event in intake.events])

    def write(self, watcher: str) -> Write:
        """Everything in one write, so that a request is stored whole or not at all."""
        return join_writes(watcher, self.verdicts, self.intake.dead)

    def response(self, appended: Appended) -> Response:
        """202 if anything new was stored, else 200; one result, or a list of them for a batch."""
        results = self._results(appended)
        status = 202 if appended.new else 200
        single = len(results) == 1 and not self.intake.batch
        body = msgspec.json.encode(results[0] if single else {"events": results})
        return Response(body, status, media_type="application/json")

    def _results(self, appended: Appended) -> list[dict[str, Any]]:
        # An append may also let go of events that were held before: only this request's count here.
        new = {(event.source, event.id): event.seq for event in appended.new}
        duplicates = {(event.source, event.id): seq for event, seq in appended.duplicates}
        results: list[dict[str, Any]] = []
        for event, verdict in zip(self.intake.events, self.verdicts, strict=True):
            if verdict.dead:
                results.append({"status": "dead", "id": event.id, "reason": verdict.dead[0].reason})
            elif not verdict.events:
                results.append({"status": "filtered", "id": event.id})
            elif (identity := (verdict.events[0].source, verdict.events[0].id)) in new:
                results.append({"status": "accepted", "id": event.id, "seq": new.pop(identity)})
            elif identity in duplicates:
                results.append({"status": "duplicate", "id": event.id, "seq": duplicates[identity]})
            else:
                results.append({"status": "held", "id": event.id})
        results.extend({"status": "dead", "id": None, "reason": letter.reason} for letter in self.intake.dead)
        return results

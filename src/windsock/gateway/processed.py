"""What became of each event of a request, decided by the pipeline and the log, told to the sender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import Response

from windsock.gateway.intake import Intake
from windsock.log.base import Appended, Write
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
        body = msgspec.json.encode({"events": results} if self.intake.batch else results[0])
        return Response(body, status, media_type="application/json")

    def _results(self, appended: Appended) -> list[dict[str, Any]]:
        # New events come back in the order in which they were given, so one look ahead tells them apart.
        new, duplicates = iter(appended.new), iter(appended.duplicates)
        ahead = next(new, None)
        results: list[dict[str, Any]] = []
        for event, verdict in zip(self.intake.events, self.verdicts, strict=True):
            if verdict.dead:
                results.append({"status": "dead", "id": event.id, "reason": verdict.dead[0].reason})
            elif not verdict.events:
                results.append({"status": "filtered", "id": event.id})
            elif ahead is not None and (ahead.source, ahead.id) == (event.source, event.id):
                results.append({"status": "accepted", "id": event.id, "seq": ahead.seq})
                ahead = next(new, None)
            else:
                results.append({"status": "duplicate", "id": event.id, "seq": next(duplicates)[1]})
        results.extend({"status": "dead", "id": None, "reason": letter.reason} for letter in self.intake.dead)
        return results

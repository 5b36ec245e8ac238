"""Sent: one request as checks and presets look at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from windsock import cloudevents
from windsock.events import InvalidEvent, parse_json

__all__ = ["Sent"]

_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 1000


@dataclass(frozen=True)
class Sent:
    """Headers (by any case), the query, the address as the sender wrote it, and the body once it is read."""

    headers: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    body: bytes = b""

    @property
    def media_type(self) -> str:
        """The content type without its parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_form(self) -> bool:
        """Whether the body is an HTML form's."""
        return self.media_type == _FORM

    @cached_property
    def fields(self) -> list[tuple[str, str]]:
        """The fields of a form; raises :class:`InvalidEvent`."""
        try:
            text = self.body.decode("utf-8")
            return parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
        except ValueError as error:
            raise InvalidEvent(f"the body is not a form in UTF-8 of at most {_MOST_FIELDS} fields") from error

    @cached_property
    def data(self) -> Any:
        """The body's content, read as its content type says; raises :class:`InvalidEvent`.

        A form is a dict of its fields. One with a field ``payload``, in which GitHub and Slack put JSON, is
        that JSON.
        """
        if not self.is_form:
            try:
                return cloudevents.data_of(self.headers.get("content-type"), self.body)
            except InvalidEvent as error:
                raise InvalidEvent(f"the body is {error}") from error
        values: dict[str, Any] = {}
        for name, value in self.fields:
            values.setdefault(name, []).append(value)
        form = {name: found[0] if len(found) == 1 else found for name, found in values.items()}
        payload = form.get("payload")
        if not isinstance(payload, str):
            return form
        try:
            return parse_json(payload.encode("utf-8"))
        except (InvalidEvent, UnicodeEncodeError) as error:
            raise InvalidEvent(f"the form's payload is {error}") from error

"""The transformation: fields picked, renamed, computed or dropped before an event is validated and stored.

::

    transform = {
        "data": "{'order': data.order_id, 'total': double(data.total)}",   # pick, rename, convert
        "data.label": "'order ' + string(data.order_id)",                  # template
        "subject": "data.order_id",                                        # attributes, too
        "data.secret": None,                                               # drop
    }

Every expression sees the event as it came; the results are put in place in the order of the paths, ``data``
first. A Python function (``package.module:function``) takes an event and returns an event, the new data as a
dict, a list of events, or None to let the event go no further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from windsock.events import Event, InvalidEvent, Verdict
from windsock.pipeline.base import Result, set_aside
from windsock.pipeline.expressions import Evaluate, Failure, compile_value, is_function
from windsock.spec import SpecError

__all__ = ["TransformStep"]

_ATTRIBUTES = (
    *("id", "source", "type", "time", "subject", "key", "sequence", "correlation", "cause"),
    *("datacontenttype", "dataschema", "traceparent"),
)
Path = tuple[str, ...]


class TransformStep:
    """Makes each event into another one."""

    name = "transform"

    def __init__(self, transform: dict[str, str | None] | str, *, watcher: str) -> None:
        self._apply: Callable[[Event], Any]
        if isinstance(transform, str):
            if not is_function(transform):
                raise SpecError(
                    f"watcher {watcher!r}: transform is package.module:function, or paths with expressions"
                )
            self._apply = compile_value(transform, watcher=watcher, option="transform")
        else:
            self._apply = _Fields(transform, watcher)

    def apply(self, events: Sequence[Event]) -> Result:
        """Sort the events into changed ones, dropped ones, and those that cannot be changed."""
        result = Result([])
        for event in events:
            try:
                made = self._apply(event)
                if isinstance(made, Failure):
                    raise InvalidEvent(made.reason)
                if made is None:
                    result.filtered.append(Verdict(stage=self.name, verdict="filtered", event=event))
                else:
                    result.kept += _events(made, event)
            except InvalidEvent as error:
                reason = f"the transformation failed: {error}"
                result.dead.append(set_aside(event, stage=self.name, reason=reason))
        return result


class _Fields:
    """Puts the values of expressions in their places."""

    def __init__(self, fields: dict[str, str | None], watcher: str) -> None:
        self._whole: Evaluate | None = None
        self._members: list[tuple[Path, Evaluate | None]] = []
        self._attributes: list[tuple[str, Evaluate | None]] = []
        for target, expression in fields.items():
            option = f"transform[{target!r}]"
            compute = (
                None if expression is None else compile_value(expression, watcher=watcher, option=option)
            )
            path = tuple(target.split("."))
            if target in _ATTRIBUTES:
                self._attributes.append((target, compute))
            elif target == "data":
                self._whole = compute or (lambda event: None)
            elif path[0] == "data" and all(path):
                self._members.append((path[1:], compute))
            else:
                raise SpecError(
                    f"watcher {watcher!r}: {option}: a path begins with 'data', or is one of "
                    f"{', '.join(_ATTRIBUTES)}"
                )

    def __call__(self, event: Event) -> Event | Failure:
        data = event.data
        if self._whole is not None:
            data = self._whole(event)
            if isinstance(data, Failure):
                return data
        for path, compute in self._members:
            value = None if compute is None else compute(event)
            if isinstance(value, Failure):
                return Failure(f"data.{'.'.join(path)}: {value.reason}")
            data = _placed(data, path, value, drop=compute is None)
        attributes: dict[str, Any] = {}
        for name, compute in self._attributes:
            attributes[name] = None if compute is None else compute(event)
            if isinstance(attributes[name], Failure):
                return Failure(f"{name}: {attributes[name].reason}")
        return _made(event, data, attributes)


def _made(event: Event, data: Any, attributes: dict[str, Any]) -> Event:
    """The event with other data and attributes, checked like any event."""
    known = {name: getattr(event, name) for name in (*_ATTRIBUTES, "extensions", "headers")}
    return Event.make(data, **(known | attributes))


def _placed(data: Any, path: Path, value: Any, *, drop: bool) -> Any:
    """``data`` with one member set or dropped; what is not on the way to it is shared, not copied."""
    if not isinstance(data, dict):
        if data is not None:
            raise InvalidEvent(f"data.{'.'.join(path)} cannot be set: {path[0]!r} would be inside a value")
        data = {}
    name, *rest = path
    copy = dict(data)
    if rest:
        if not drop or name in copy:
            copy[name] = _placed(copy.get(name), tuple(rest), value, drop=drop)
    elif drop:
        copy.pop(name, None)
    else:
        copy[name] = value
    return copy


def _events(made: Any, event: Event) -> list[Event]:
    """What a function returned, as events; raises :class:`InvalidEvent` for anything else."""
    if isinstance(made, Event):
        return [made]
    if isinstance(made, list | tuple) and all(isinstance(one, Event) for one in made):
        return list(made)
    if isinstance(made, dict):
        return [_made(event, made, {})]
    kind = type(made).__name__
    raise InvalidEvent(f"it returned a {kind}: return an event, a list of events, a dict of data, or None")

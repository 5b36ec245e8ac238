"""Expressions over one event: CEL, or a Python function named ``package.module:function``.

An expression sees the event's attributes by their names (``id``, ``source``, ``type``, ``subject``, ``time``,
``key``, ``sequence``, ``correlation``, ``cause``, ``datacontenttype``, ``dataschema``, ``data``,
``extensions``, ``headers``), each also as ``event.id`` and so on::

    type == 'order.created' && data.total > 100
    data.?customer.?tier.orValue('none') in ['gold', 'silver']
    subject.matches('^incoming/.*[.]csv$') && time > timestamp('2026-01-01T00:00:00Z')

It is compiled once. A mistake is refused then, with its position; what goes wrong on one event (a missing
field, text where a number is needed, a function that raises) is a :class:`Failure` for that event alone.
"""

from __future__ import annotations

import importlib
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

from windsock.events import Event
from windsock.pipeline.fast import UNSURE, compile_fast
from windsock.spec import SpecError
from windsock.values import InvalidEvent, describe, scalar_text

__all__ = [
    "Evaluate",
    "Failure",
    "compile_condition",
    "compile_text",
    "compile_value",
    "import_function",
    "is_function",
]

_DYNAMIC = ("subject", "key", "sequence", "correlation", "cause", "datacontenttype", "dataschema")
_TYPES: Mapping[str, Any] = {
    "id": cel.Type.STRING,
    "source": cel.Type.STRING,
    "type": cel.Type.STRING,
    "time": cel.Type.TIMESTAMP,
    **dict.fromkeys((*_DYNAMIC, "data", "extensions", "headers"), cel.Type.DYN),
}
_FUNCTION = re.compile(r"\s*([A-Za-z_][\w.]*):([A-Za-z_]\w*)\s*")
_WORD = re.compile(r"[A-Za-z_]\w*")
_MISTAKE = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
_ERROR = cel.Type.ERROR


@dataclass(frozen=True, slots=True)
class Failure:
    """An expression could not be evaluated on one event."""

    reason: str


Evaluate = Callable[[Event], Any]
"""An expression's value on an event, or a :class:`Failure`; never raises."""


def is_function(expression: str) -> bool:
    """Whether it names a Python function."""
    return _FUNCTION.fullmatch(expression) is not None


def import_function(target: str, where: str) -> Callable[..., Any]:
    """The function that ``package.module:function`` names; raises SpecError, which begins with ``where``."""
    named = _FUNCTION.fullmatch(target)
    if named is None:
        raise SpecError(f"{where}: {target!r} is not package.module:function")
    return _function(named[1], named[2], where)


def compile_value(expression: str, *, watcher: str, option: str) -> Evaluate:
    """Compile an expression of any type; raises SpecError that shows where the mistake is."""
    named = _FUNCTION.fullmatch(expression)
    if named:
        return _guarded(_function(named[1], named[2], f"watcher {watcher!r}: {option}"))
    slow = _evaluator(_compiled(expression, watcher, option), expression)
    return _quick(compile_fast(expression, condition=False), slow)


def compile_condition(expression: str, *, watcher: str, option: str) -> Evaluate:
    """Compile a condition: its value is True, False or a :class:`Failure`.

    A function's answer counts by its truth; CEL has to give a bool.
    """
    named = _FUNCTION.fullmatch(expression)
    if named:
        function = _function(named[1], named[2], f"watcher {watcher!r}: {option}")
        return _guarded(lambda event: bool(function(event)))
    compiled = _compiled(expression, watcher, option)
    if compiled.return_type() not in (cel.Type.BOOL, cel.Type.DYN):
        raise SpecError(
            f"watcher {watcher!r}: {option} must be true or false, but this gives "
            f"{compiled.return_type().name().lower()}:\n    {expression}"
        )
    evaluate = _evaluator(compiled, expression)

    def condition(event: Event) -> Any:
        value = evaluate(event)
        if value is True or value is False or isinstance(value, Failure):
            return value
        return Failure(f"gave {_kind(value)}, not true or false")

    return _quick(compile_fast(expression, condition=True), condition)


def compile_text(expression: str, *, watcher: str, option: str) -> Evaluate:
    """Compile an expression that names something: its value is a text that is not empty, or a Failure.

    Numbers, booleans and times become text (``1.0`` the same as ``1``); a list of such becomes JSON.
    """
    evaluate = compile_value(expression, watcher=watcher, option=option)

    def text(event: Event) -> str | Failure:
        value = evaluate(event)
        if isinstance(value, Failure):
            return value
        if value is None or (isinstance(value, str | list | tuple) and not value):
            return Failure(f"gave {'null' if value is None else f'an empty {type(value).__name__}'}")
        try:
            if isinstance(value, list | tuple):
                return msgspec.json.encode([_part(part) for part in value]).decode()
            return _part(value)
        except InvalidEvent:
            return Failure(f"gave {_kind(value)}, not a text, a number or a list of them")

    return text


def _quick(fast: Callable[[Event], Any] | None, slow: Evaluate) -> Evaluate:
    """The fast form of an expression, if it has one, with CEL for the events that it is not sure of."""
    if fast is None:
        return slow

    def evaluate(event: Event) -> Any:
        try:
            return fast(event)
        except UNSURE:
            return slow(event)

    return evaluate


def _part(value: Any) -> str:
    if type(value) is float and value.is_integer():
        value = int(value)
    return scalar_text(value)


def _kind(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"


@lru_cache(maxsize=1)
def _environment() -> Any:
    # Inside the container `event` a bare `type` means `event.type`, which CEL's own `type` would hide.
    return cel.NewEnv(
        container="event",
        variables={f"event.{name}": kind for name, kind in _TYPES.items()},
        extensions=[
            ext_bindings.ExtBindings(),
            ext_math.ExtMath(),
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
        ],
    )


def _compiled(expression: str, watcher: str, option: str) -> Any:
    try:
        return _environment().compile(expression)
    except (RuntimeError, TypeError) as error:  # the binding knows no finer types
        where = f"watcher {watcher!r}: {option}"
        found = _MISTAKE.search(str(error))
        if found is None:
            raise SpecError(
                f"{where} is not a CEL expression: {describe(error)}\n    {expression!a}"
            ) from error
        line, column = int(found[1]), int(found[2])
        reason = found[3].replace(" (in container 'event')", "").replace(" [INVALID_ARGUMENT]", "")
        if "undeclared reference" in reason:
            reason += f"; an expression knows {', '.join(_TYPES)}"
        text = (expression.splitlines() or [""])[line - 1]
        raise SpecError(
            f"{where}, line {line}, column {column}: {reason}\n    {text}\n    {_blank(text[: column - 1])}^"
        ) from error


def _blank(text: str) -> str:
    """White space as wide as ``text``, so that a caret below it points at what follows."""
    wide = ("W", "F")
    return "".join("\t" if c == "\t" else " " * (1 + (unicodedata.east_asian_width(c) in wide)) for c in text)


def _evaluator(compiled: Any, expression: str) -> Evaluate:
    # Only what the expression mentions is handed over: to convert the rest costs more than to evaluate.
    words = set(_WORD.findall(expression))
    names = tuple((name, f"event.{name}") for name in _TYPES if name in words)
    run = compiled.eval

    def evaluate(event: Event) -> Any:
        try:
            result = run(data={full: getattr(event, name) for name, full in names})
            value = result.value()
            if value is True or value is False:
                return value
            kind = result.type()
            if kind == _ERROR:
                return Failure(_reason(value))
            return result.plain_value() if type(value) in (list, dict) else value
        except RuntimeError as error:  # what the binding raises for a value that it cannot convert
            return Failure(describe(error))

    return evaluate


def _reason(error: Any) -> str:
    """CEL's message without its status code."""
    return re.sub(r"^[A-Z_]+: ", "", str(error)).replace("event.", "")


def _function(module: str, name: str, where: str) -> Callable[[Event], Any]:
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:  # importing runs the user's code, which may raise anything
        raise SpecError(f"{where}: cannot import {module}:{name}: {describe(error)}") from error
    if not callable(function):
        raise SpecError(f"{where}: {module}:{name} is not a function")
    found: Callable[[Event], Any] = function
    return found


def _guarded(function: Callable[[Event], Any]) -> Evaluate:
    def evaluate(event: Event) -> Any:
        try:
            return function(event)
        except Exception as error:  # noqa: BLE001 - the user's code; it costs this event alone
            return Failure(describe(error))

    return evaluate

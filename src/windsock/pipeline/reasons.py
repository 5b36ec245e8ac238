"""Why a condition was not true for an event: the smallest parts of it that were false, with their values.

A CEL expression is cut at its top-level ``&&`` and ``||``; each part is evaluated by itself, and of a
comparison both sides are shown::

    reasons("type == 'order' && (data.total > 100 || data.vip)", event)
    # ["data.total > 100 is false: data.total = 12", "data.vip is false"]
"""

from __future__ import annotations

import re

import msgspec

from windsock.events import Event
from windsock.pipeline.expressions import Failure, compile_value, is_function
from windsock.spec import SpecError

__all__ = ["reasons"]

_COMPARISON = re.compile(r"\s(==|!=|<=|>=|<|>|in)\s")
_OPEN, _CLOSE = "([{", ")]}"
_LITERAL = re.compile(r"""\s*(-?[\d.]+u?|true|false|null|'[^']*'|"[^"]*")\s*""")
_MOST = 80


def reasons(expression: str, event: Event) -> list[str]:
    """The parts of a condition that were false or could not be evaluated; empty if it was true."""
    if is_function(expression):
        return [] if _true(expression, event) else [f"{expression} did not return true"]
    return _false_parts(_bare(expression), event)


def _false_parts(expression: str, event: Event) -> list[str]:
    if _true(expression, event):
        return []
    alternatives = _split(expression, "||")
    if len(alternatives) > 1:
        return [part for one in alternatives for part in _false_parts(_bare(one), event)]
    together = _split(expression, "&&")
    if len(together) > 1:
        return [part for one in together for part in _false_parts(_bare(one), event)]
    return [_shown(expression, event)]


def _shown(expression: str, event: Event) -> str:
    """One false part, with the values of the two sides of a comparison."""
    value = _value(expression, event)
    if isinstance(value, Failure):
        return f"{expression} cannot be evaluated: {value.reason}"
    sides = _sides(expression)
    values = [f"{side} = {_short(side, event)}" for side in sides if not _LITERAL.fullmatch(side)]
    return f"{expression} is {msgspec.json.encode(value).decode()}" + (
        f": {', '.join(values)}" if values else ""
    )


def _sides(expression: str) -> list[str]:
    for found in _COMPARISON.finditer(expression):
        if _depth(expression, found.start()) == 0:
            return [expression[: found.start()].strip(), expression[found.end() :].strip()]
    return []


def _short(expression: str, event: Event) -> str:
    value = _value(expression, event)
    text = value.reason if isinstance(value, Failure) else msgspec.json.encode(value).decode()
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def _true(expression: str, event: Event) -> bool:
    return _value(expression, event) is True


def _value(expression: str, event: Event) -> object:
    try:
        return compile_value(expression, watcher="explain", option="where")(event)
    except SpecError as error:  # a part that means nothing by itself, such as one side of `a ? b : c`
        return Failure(str(error).splitlines()[0])


def _split(expression: str, operator: str) -> list[str]:
    """The expression cut at an operator that stands in no bracket and no text."""
    parts, start = [], 0
    at = expression.find(operator)
    while at >= 0:
        if _depth(expression, at) == 0:
            parts.append(expression[start:at].strip())
            start = at + len(operator)
        at = expression.find(operator, at + len(operator))
    return [*parts, expression[start:].strip()]


def _bare(expression: str) -> str:
    """Without the brackets around the whole of it."""
    text = expression.strip()
    while text.startswith("(") and text.endswith(")") and _depth(text, len(text) - 1) == 1:
        inner = text[1:-1]
        if any(_depth(text, at) == 0 for at in range(1, len(text) - 1)):
            break
        text = inner.strip()
    return text


def _depth(expression: str, position: int) -> int:
    """How many brackets are open at a position; inside a text, more than any."""
    depth, quote, escaped = 0, "", False
    for character in expression[:position]:
        if quote:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
    return 1_000_000 if quote else depth

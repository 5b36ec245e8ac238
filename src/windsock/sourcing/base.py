"""What the parts of event sourcing share: a log, names, and which code made what is stored."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Mapping
from types import CodeType
from typing import Any, Self

import msgspec

from windsock.events import Event, WindsockError
from windsock.log import Log
from windsock.spec import SpecError

__all__ = ["OnLog", "as_event", "checked_name", "code_version", "function_name", "plain"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_DAG_FILE = re.compile(r"^unusual_prefix_[0-9a-f]+_")


class OnLog:
    """Something that is declared once and works on a log."""

    bound: Log | None
    """The log that it was given."""

    def __init__(self, name: str, log: Log | None) -> None:
        self.name = checked_name(type(self).__name__, name)
        self.bound = log

    @property
    def log(self) -> Log:
        """The log that it works on."""
        if self.bound is None:
            raise WindsockError(
                f"{type(self).__name__} {self.name!r} has no log: pass log=open_log(url), or take the class "
                "from `windsock`, which finds the log of this Airflow"
            )
        return self.bound

    def using(self, log: Log) -> Self:
        """The same on another log."""
        twin = copy.copy(self)
        twin.bound = log
        return twin


def checked_name(what: str, name: str) -> str:
    """A name that can stand in the database, on a command line and in a message."""
    if not _NAME.fullmatch(name):
        raise SpecError(
            f"{what} {name!r}: use letters, digits, '_', '-' and '.' for its name, at most 100 characters"
        )
    return name


def as_event(event: Event | Mapping[str, Any]) -> Event:
    """The event, also if it is the plain value that a mapped task gets."""
    return event if isinstance(event, Event) else Event.from_dict(event)


def plain(value: Any, what: str) -> bytes:
    """The value as JSON, if it comes back from there as it is."""
    try:
        encoded = msgspec.json.encode(value)
        same = msgspec.json.decode(encoded) == value
    except (TypeError, ValueError, RecursionError) as error:
        raise WindsockError(f"{what} cannot be stored: {error}; use plain JSON values") from error
    if not same:
        raise WindsockError(
            f"{what} would not come back from the log as it is: use plain JSON values (dicts with text keys, "
            "lists, text, numbers, true, false, None), no tuples, sets, dates or objects"
        )
    return encoded


def function_name(function: Any) -> str | None:
    """The name by which a function can be known for good; None for a lambda, an inner function, an object."""
    name = getattr(function, "__qualname__", "<")
    owner = getattr(function, "__self__", None)
    if "<" in name or not (owner is None or isinstance(owner, type)):
        return None
    # Airflow imports a Dag file under a name made of its path, which changes with the bundle's version.
    return _DAG_FILE.sub("", f"{function.__module__}") + f".{name}"


def code_version(function: Any, *also: Any) -> str:
    """A text that changes when the function's own code, or what else is named, does."""
    digest = hashlib.blake2b(repr(also).encode("utf-8", "replace"), digest_size=8)
    while function is not None:
        code = getattr(function, "__code__", None)
        if code is not None:
            _feed(digest, code)
            digest.update(repr((function.__defaults__, function.__kwdefaults__)).encode("utf-8", "replace"))
        function = getattr(function, "__wrapped__", None)
    return digest.hexdigest()


def _feed(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _feed(digest, constant)
        else:
            # The order of a set of literals differs from process to process.
            fixed = sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant
            digest.update(repr(fixed).encode("utf-8", "replace"))

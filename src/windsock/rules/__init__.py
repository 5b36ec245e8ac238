"""Rules over the events of several watchers: complex event processing.

::

    all_of("orders", "payments", within="1h", by="data.order_id")
    sequence("uploaded", leg("checked", where="data.ok"), "released", within="1d", by="subject")
    absence("heartbeats", within="10min", by="data.device")
    window("sales", kind="sliding", size="1h", every="5min", aggregates={"total": "sum:data.total"})
    complete("parts", n=24, part="data.hour", by="data.day")

A rule is a plain value; as a dict it is ``{"all_of": ["orders", "payments"], "within": "1h", …}``. The
legs are names of watchers, or of parts of their events (:func:`leg`). Durations are seconds or text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from windsock.rules.base import Late, Leg, Rule
from windsock.rules.completeness import Complete
from windsock.rules.joins import AllOf, AnyOf, Sequence
from windsock.rules.presence import Absence, Count
from windsock.rules.windows import Window
from windsock.spec import SpecError, WatcherSpec, seconds

__all__ = [
    "Leg",
    "Rule",
    "absence",
    "all_of",
    "any_of",
    "complete",
    "count",
    "feeders",
    "leg",
    "rule_of",
    "sequence",
    "window",
]

KIND = "correlate"
_RULES = (AllOf, AnyOf, Sequence, Absence, Count, Window, Complete)
_AnyRule = AllOf | AnyOf | Sequence | Absence | Count | Window | Complete
_DURATIONS = ("within", "lateness", "size", "every", "gap", "late_for")

Time = str | float


def leg(watcher: str, *, where: str | None = None, name: str | None = None) -> Leg:
    """A watcher's events, or those that ``where`` matches; ``name`` is what the result calls them."""
    return Leg(watcher=watcher, where=where, name=name)


def all_of(*legs: Leg | str, within: Time, by: str | None = None, **more: Any) -> Rule:
    """One event of every leg, no further apart than ``within``; each event is in one result."""
    return rule_of({"rule": "all_of", "legs": legs, "within": within, "by": by, **more})


def any_of(*legs: Leg | str, within: Time = 0, by: str | None = None, **more: Any) -> Rule:
    """An event of any leg; with ``within``, what follows in that time is not told again."""
    return rule_of({"rule": "any_of", "legs": legs, "within": within, "by": by, **more})


def sequence(*legs: Leg | str, within: Time, by: str | None = None, **more: Any) -> Rule:
    """An event of each leg, one after the other, all ``within`` one time."""
    return rule_of({"rule": "sequence", "legs": legs, "within": within, "by": by, **more})


def absence(
    *legs: Leg | str, within: Time, by: str | None = None, after: Leg | str | None = None, **more: Any
) -> Rule:
    """No event of the legs for ``within``, since the last one or since an event of ``after``."""
    return rule_of({"rule": "absence", "legs": legs, "within": within, "by": by, "after": after, **more})


def count(*legs: Leg | str, n: int, within: Time, by: str | None = None, **more: Any) -> Rule:
    """``n`` events of the legs within a time."""
    return rule_of({"rule": "count", "legs": legs, "n": n, "within": within, "by": by, **more})


def window(
    *legs: Leg | str,
    kind: str = "tumbling",
    size: Time = 0,
    every: Time = 0,
    gap: Time = 0,
    by: str | None = None,
    aggregates: Mapping[str, str] | None = None,
    late: Late = "ignore",
    late_for: Time = 3600,
    **more: Any,
) -> Rule:
    """Aggregates of tumbling, sliding or session windows."""
    given = {"kind": kind, "size": size, "every": every, "gap": gap, "late": late, "late_for": late_for}
    wanted = dict(aggregates or {})
    return rule_of({"rule": "window", "legs": legs, "by": by, "aggregates": wanted, **given, **more})


def complete(
    *legs: Leg | str,
    n: int | str | None = None,
    part: str = "id",
    manifest: Leg | str | None = None,
    members: str | None = None,
    watermark: str | None = None,
    size: Time = 0,
    within: Time = 86400,
    by: str | None = None,
    late: Late = "ignore",
    late_for: Time = 3600,
    **more: Any,
) -> Rule:
    """All parts are there: ``n`` of them, what a ``manifest`` lists, or up to a ``watermark``."""
    what = {"n": n, "part": part, "manifest": manifest, "members": members, "watermark": watermark}
    times = {"size": size, "within": within, "late_for": late_for}
    return rule_of({"rule": "complete", "legs": legs, "by": by, "late": late, **what, **times, **more})


def rule_of(value: Any) -> Rule:
    """The rule behind plain values, checked; raises SpecError that names what is wrong."""
    if isinstance(value, Rule):
        return value
    plain = msgspec.to_builtins(value)
    if not isinstance(plain, dict):
        raise SpecError(f"a rule is made by all_of(…) and the like, or is a dict: {value!r:.80} is neither")
    names = [str(rule.__struct_config__.tag) for rule in _RULES]
    named = [name for name in names if name in plain]
    if "rule" not in plain and len(named) == 1:
        legs = plain.pop(named[0])
        plain |= {"rule": named[0], "legs": [legs] if isinstance(legs, str | dict) else legs}
    if plain.get("rule") not in names:
        raise SpecError(f"a rule is one of {', '.join(names)}: this one names none of them")
    try:
        given = {n: seconds(v) if n in _DURATIONS and isinstance(v, str) else v for n, v in plain.items()}
        rule: Rule = msgspec.convert(given, _AnyRule)
    except (msgspec.ValidationError, SpecError) as error:
        raise SpecError(f"{plain['rule']}: {error}") from error
    rule.check()
    return rule


def feeders(specs: list[WatcherSpec]) -> set[str]:
    """Of the watchers of one asset, those that only feed a correlation which is attached beside them."""
    names: set[str] = set()
    for spec in specs:
        if spec.kind == KIND:
            # A rule that is refused finds nothing; whoever runs it says why.
            with contextlib.suppress(SpecError):
                names |= {leg.watcher for leg in rule_of(spec.options.get("rule")).all_legs()}
    return names

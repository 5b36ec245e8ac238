"""Whether data that fits one schema also fits another, and if not, what breaks.

::

    backward   everything that the old schema accepts, the new one accepts: new readers read old events
    forward    everything that the new schema accepts, the old one accepts: old readers read new events
    full       both

The answer errs on one side only: no finding means that it holds for every document. What cannot be decided
(two different patterns, a changed ``not``) is a finding that says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import msgspec

__all__ = ["Break", "Mode", "compare_schemas"]

Mode = Literal["backward", "forward", "full"]
Schema = dict[str, Any] | bool

_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_NOTES = {
    *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"),
    *("$schema", "$id", "$defs", "definitions", "discriminator"),
}
_UNDECIDED = {
    "string": ("pattern", "format", "contentEncoding", "contentMediaType"),
    "array": ("contains", "minContains", "maxContains"),
    "object": ("propertyNames", "dependentRequired", "dependentSchemas", "dependencies"),
}
"""Keywords of a type that must stay as they are, since what they accept cannot be compared."""
_ALWAYS_UNDECIDED = ("not", "if", "then", "else", "$dynamicRef", "$recursiveRef")
_CONTEXTUAL = ("unevaluatedProperties", "unevaluatedItems")
_UNMERGED = {*_CONTEXTUAL, "minContains", "maxContains", "if", "then", "else", "$ref"}
_COUNTS = {"string": "Length", "array": "Items", "object": "Properties"}
_MOST_STEPS = 20_000


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """One place where a document that was fine is refused."""

    direction: Literal["backward", "forward"]
    path: str
    problem: str


def compare_schemas(
    old: dict[str, Any], new: dict[str, Any], *, mode: Mode = "backward", declared: bool = False
) -> list[Break]:
    """What breaks from the old schema to the new one, in the directions that the mode names.

    ``declared`` counts on documents that have only the members that their schema declares, although it
    would allow others; then a new optional property is no break.
    """
    found: list[Break] = []
    if mode in ("backward", "full"):
        problems = _Comparison(old, new, declared).narrowed(old, new, "data")
        found += [Break(direction="backward", path=path, problem=problem) for path, problem in problems]
    if mode in ("forward", "full"):
        problems = _Comparison(new, old, declared).narrowed(new, old, "data")
        found += [Break(direction="forward", path=path, problem=problem) for path, problem in problems]
    return list(dict.fromkeys(found))


Problems = list[tuple[str, str]]


@dataclass
class _Comparison:
    """Looks for documents that ``was_root`` accepts and ``is_root`` refuses."""

    was_root: dict[str, Any]
    is_root: dict[str, Any]
    declared: bool
    _under_way: set[tuple[str, str]] = field(default_factory=set)
    _steps: int = 0

    def narrowed(self, was: Schema, now: Schema, path: str) -> Problems:
        """Why something that ``was`` accepts may not be accepted now; empty if it always is."""
        if was is False or now is True:
            return []
        if now is False:
            return [(path, "is not allowed any more")]
        was = {} if was is True else was
        pair = (json.dumps(was, sort_keys=True), json.dumps(now, sort_keys=True))
        self._steps += 1
        if self._steps > _MOST_STEPS:
            return [(path, "is too deep to be compared")]
        if pair in self._under_way:
            return []  # a schema that contains itself: decided where it began
        self._under_way.add(pair)
        try:
            return list(self._compare(was, now, path))
        finally:
            self._under_way.discard(pair)

    def _compare(self, was: dict[str, Any], now: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
        if "$ref" in now:
            target = _resolved(now["$ref"], self.is_root)
            if target is None:
                yield path, f"refers to {now['$ref']!r}, which cannot be compared"
                return
            yield from self.narrowed(was, target, path)
            now = {name: value for name, value in now.items() if name != "$ref"}
        if "$ref" in was:
            target = _resolved(was["$ref"], self.was_root)
            # What stands beside a reference may or may not count, so it is not relied on.
            yield from self.narrowed(True if target is None else target, now, path)
            return
        if not now.keys() - _NOTES:
            return
        values = [was["const"]] if "const" in was else was.get("enum")
        if values is not None:
            yield from self._values(values, now, path)
            return
        for union in ("anyOf", "oneOf"):
            if union in was and was.get(union) != now.get(union):
                rest = {name: value for name, value in was.items() if name != union}
                for branch in was[union]:
                    yield from self.narrowed(_both(rest, branch), now, path)
                return
        yield from self._combined(was, now, path)
        yield from self._typed(was, now, path)

    def _values(self, values: list[Any], now: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
        """A schema that lists its values is compared by trying them."""
        import jsonschema_rs

        definitions: dict[str, Any] = {
            name: self.is_root[name] for name in ("$defs", "definitions") if name in self.is_root
        }
        try:
            check = jsonschema_rs.validator_for({**definitions, "allOf": [now]})
            refused = [value for value in values if not check.is_valid(value)]
        except (ValueError, jsonschema_rs.ValidationError):
            yield path, "cannot be compared"
            return
        if refused:
            yield path, f"no longer allows {', '.join(json.dumps(value) for value in refused)}"

    def _combined(self, was: dict[str, Any], now: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
        parts = [{name: value for name, value in was.items() if name != "allOf"}, *was.get("allOf", ())]
        for wanted in now.get("allOf", ()):
            found = [self.narrowed(part, wanted, path) for part in parts]
            if all(found):
                yield from found[0]
        for union in ("anyOf", "oneOf"):
            if union in now and not self._same(was.get(union), now[union]):
                for one in _types(was):
                    yield from self._in_union({**was, "type": one}, now[union], path, only=union == "oneOf")
        for keyword in _ALWAYS_UNDECIDED:
            if keyword in now and not self._same(was.get(keyword), now[keyword]):
                yield path, f"has another {keyword!r}, which cannot be compared"
        if any(keyword in now for keyword in _CONTEXTUAL) and not self._same(was, now):
            yield path, "has unevaluated members, which cannot be compared"

    def _in_union(
        self, was: dict[str, Any], branches: list[Schema], path: str, *, only: bool
    ) -> Iterator[tuple[str, str]]:
        """Whether all of it is in one branch, and if it may be ``only`` one, in no other."""
        found = [self.narrowed(was, branch, path) for branch in branches]
        fitting = [n for n, problems in enumerate(found) if not problems]
        kind = was["type"]
        if not fitting:
            yield path, f"no longer allows every {kind}"
        elif only and any(
            n != fitting[0] and self._may_be(branch, kind) for n, branch in enumerate(branches)
        ):
            yield path, f"allows a {kind} in more than one branch of oneOf"

    def _may_be(self, schema: Schema, kind: str) -> bool:
        if isinstance(schema, dict) and "$ref" not in schema:
            return any(_accepts(one, kind) or _accepts(kind, one) for one in _types(schema))
        return schema is not False

    def _typed(self, was: dict[str, Any], now: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
        before, after = _types(was), _types(now)
        gone = [one for one in before if not any(_accepts(other, one) for other in after)]
        if gone:
            yield path, f"no longer allows {', '.join(gone)}: it was {_said(was)}, it is {_said(now)}"
        if "enum" in now or "const" in now:
            yield path, f"allows only {json.dumps(now.get('enum', [now.get('const')]))}"
        left = [one for one in before if one not in gone]
        if "integer" in left or "number" in left:
            yield from _numbers(was, now, path, whole="number" not in left)
        for kind in ("string", "array", "object"):
            if kind in left:
                yield from _counted(was, now, path, _COUNTS[kind])
                for keyword in _UNDECIDED[kind]:
                    if keyword in now and not self._same(was.get(keyword), now[keyword]):
                        yield path, f"has another {keyword!r}"
        if "array" in left:
            yield from self._arrays(was, now, path)
        if "object" in left:
            yield from self._objects(was, now, path)

    def _arrays(self, was: dict[str, Any], now: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
        if now.get("uniqueItems") and not was.get("uniqueItems"):
            yield path, "has to have unique items"
        (first, rest), (first_now, rest_now) = _items(was), _items(now)
        for n in range(max(len(first), len(first_now))):
            before = first[n] if n < len(first) else rest
            after = first_now[n] if n < len(first_now) else rest_now
            yield from self.narrowed(before, after, f"{path}[{n}]")
        yield from self.narrowed(rest, rest_now, f"{path}[]")

    def _objects(self, was: dict[str, Any], now: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
        for name in now.get("required", ()):
            if name not in was.get("required", ()):
                yield f"{path}.{name}", "is required"
        members, members_now = was.get("properties", {}), now.get("properties", {})
        rest = False if self.declared else was.get("additionalProperties", True)
        rest_now = now.get("additionalProperties", True)
        patterns, patterns_now = was.get("patternProperties", {}), now.get("patternProperties", {})
        for pattern in patterns_now:
            if pattern in patterns:
                yield from self.narrowed(patterns[pattern], patterns_now[pattern], f"{path}./{pattern}/")
            elif members or rest is not False or patterns:
                yield f"{path}./{pattern}/", "is a new pattern, which cannot be compared"
        for pattern in patterns.keys() - patterns_now.keys():
            yield from self.narrowed(patterns[pattern], rest_now, f"{path}./{pattern}/")
        for name in [*members, *(name for name in members_now if name not in members)]:
            # A name that a pattern may have allowed is not in the hands of additionalProperties alone.
            before = members.get(name, True if patterns else rest)
            if name in members_now:
                yield from self.narrowed(before, members_now[name], f"{path}.{name}")
            elif rest_now is False:
                yield f"{path}.{name}", "was removed, and no others are allowed"
            else:
                yield from self.narrowed(before, rest_now, f"{path}.{name}")
        if rest_now is False and rest is not False:
            yield path, "allows no additional properties any more"
        else:
            yield from self.narrowed(rest, rest_now, f"{path}.*")

    def _same(self, was: Any, now: Any) -> bool:
        """Whether two parts mean the same: equal, and with no references that may lead elsewhere."""
        return bool(was == now) and ("$ref" not in json.dumps(now) or self.was_root == self.is_root)


def _both(rest: dict[str, Any], branch: Schema) -> Schema:
    """A schema that accepts at least what both accept."""
    if isinstance(branch, bool):
        return rest if branch else False
    if (rest.keys() & branch.keys()) - _NOTES or (rest.keys() | branch.keys()) & _UNMERGED:
        return branch
    return {**rest, **branch}


def _resolved(reference: Any, root: dict[str, Any]) -> Schema | None:
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found if isinstance(found, dict | bool) else None


def _types(schema: Mapping[str, Any]) -> list[str]:
    given = schema.get("type")
    if given is None:
        return [one for one in _TYPES if one != "integer"]
    return [given] if isinstance(given, str) else list(given)


def _accepts(wide: str, narrow: str) -> bool:
    return wide == narrow or (wide == "number" and narrow == "integer")


def _said(schema: Mapping[str, Any]) -> str:
    return " or ".join(_types(schema)) if "type" in schema else "anything"


def _items(schema: Mapping[str, Any]) -> tuple[list[Schema], Schema]:
    """The schemas of the first items, and of all others."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return schema.get("prefixItems", []), items


def _numbers(
    was: Mapping[str, Any], now: Mapping[str, Any], path: str, *, whole: bool
) -> Iterator[tuple[str, str]]:
    for keyword, sign in (("minimum", 1), ("maximum", -1)):
        before, after = _bound(was, keyword, sign), _bound(now, keyword, sign)
        if after is not None and (before is None or before < after):
            name = keyword if after[1] == 0 else f"exclusive{keyword.capitalize()}"
            yield path, f"has a tighter {name}, {now[name]}"
    step = now.get("multipleOf")
    if step is not None:
        known = was.get("multipleOf", 1 if whole else None)
        if known is None or (Fraction(str(known)) / Fraction(str(step))).denominator != 1:
            yield path, f"has to be a multiple of {step}"


def _bound(schema: Mapping[str, Any], keyword: str, sign: int) -> tuple[Fraction, int] | None:
    """The bound, the larger the tighter; with 1 if it is exclusive itself."""
    bounds = [
        (sign * Fraction(str(value)), exclusive)
        for exclusive, name in enumerate((keyword, f"exclusive{keyword.capitalize()}"))
        if isinstance(value := schema.get(name), int | float) and not isinstance(value, bool)
    ]
    return max(bounds, default=None)


def _counted(
    was: Mapping[str, Any], now: Mapping[str, Any], path: str, what: str
) -> Iterator[tuple[str, str]]:
    if now.get(f"min{what}", 0) > was.get(f"min{what}", 0):
        yield path, f"has a larger min{what}, {now[f'min{what}']}"
    most, most_now = was.get(f"max{what}"), now.get(f"max{what}")
    if most_now is not None and (most is None or most > most_now):
        yield path, f"has a smaller max{what}, {most_now}"

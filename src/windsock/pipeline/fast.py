"""The simple part of CEL as Python: what most filters say, without handing the event's data to CEL.

To convert the data costs CEL 15 to 30 µs an event, whatever is asked of it. Paths, literals, comparisons,
``in`` with a list of literals, ``&&``, ``||``, ``!``, ``has``, ``size``, ``startsWith``, ``endsWith``,
``contains`` and plain patterns of ``matches`` become one Python function instead.

It decides only what it is sure of. A missing field, a value of another type than the expression suggests, a
comparison whose rules differ between Python and CEL: each raises one of :data:`UNSURE`, and the caller asks
CEL about that event. So the value, and the reason of a failure, are CEL's own in every case. It counts on
events whose data is normalised, as :meth:`windsock.events.Event.make` leaves it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from windsock.events import Event

__all__ = ["UNSURE", "compile_fast"]


class _Unsure(Exception):
    """Python's answer might not be CEL's."""


UNSURE = (_Unsure, KeyError, TypeError, AttributeError)
"""What a fast expression raises when CEL has to be asked; the last three come from the access itself."""

_ATTRIBUTES = {
    *("id", "source", "type", "subject", "key", "sequence", "correlation", "cause"),
    *("datacontenttype", "dataschema", "data", "extensions", "headers"),
}
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<double>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    | (?P<int>\d+(?![\w.]))
    | (?P<text>'(?:[^'\\\r\n]|\\.)*'|"(?:[^"\\\r\n]|\\.)*")
    | (?P<name>[A-Za-z_]\w*)(?!['"])
    | (?P<sign>&&|\|\||==|!=|<=|>=|[<>!.,()\[\]-])
    )""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(
    r"""\\(?:([abfnrtv\\?'"`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2}))"""
)
_ESCAPED = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_PATTERN = re.compile(
    r"""(?P<start>\^?)
    (?P<body>(?:
        (?:[\w/\ :@\#%=~,-] | \\[.\\/+*?()\[\]{}|^$dw-] | \[(?:[A-Za-z0-9]-[A-Za-z0-9]|[\w.])+\] | \.)
        [*+?]?
    )*)
    (?P<end>\$?)""",
    re.VERBOSE | re.ASCII,
)
"""What means the same to RE2 and to Python, if ``$`` is the end."""
_REPEATED = re.compile(r"\\.|(?P<repeated>[*+])")
_ORDER = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Each order, and what it becomes when the sides are exchanged."""
_WORDS = {"true": True, "false": False, "null": None}
_ALIKE = frozenset({str, int, float, bool, type(None)})
_END = ("end", "")
_EXACT = 2**53
"""CEL compares an integer with a double as doubles; below this, every integer is one."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of the expression as Python source."""

    kind: str
    """``path`` (any value), ``bool``, ``size`` (an integer), ``literal`` or ``list`` (of literals)."""
    source: str
    value: Any = None
    """Of a literal."""


def compile_fast(expression: str, *, condition: bool) -> Callable[[Event], Any] | None:
    """The expression as a Python function, or None if there is more to it than this module knows.

    It has to be an expression that CEL has compiled. As a ``condition`` it gives True or False only.
    """
    try:
        parser = _Parser(expression)
        node = parser.whole()
        source = parser.truth(node) if condition else parser.result(node)
    except (_Unsure, RecursionError):
        return None
    # Only names of this module and operators get into the source, no text of the user's.
    made: Callable[[Event], Any] = eval(f"lambda event: {source}", parser.names)  # noqa: S307
    return made


class _Parser:
    """Recursive descent over CEL's grammar as far as it goes; raises _Unsure beyond."""

    def __init__(self, expression: str) -> None:
        self._tokens = _tokens(expression)
        self._at = 0
        self._held = 0
        self.names: dict[str, Any] = {
            "__builtins__": {},
            "unsure": _unsure,
            "equal": _equal,
            "len": len,
            "bool": bool,
            "str": str,
            "dict": dict,
            "numbers": frozenset({int, float}),
            "sized": frozenset({str, list, dict}),
            "holding": frozenset({list, dict}),
            "scalars": frozenset({str, int, float, bool, type(None)}),
        }

    def whole(self) -> _Node:
        node = self._either()
        if self._peek() != _END:
            _unsure()
        return node

    def truth(self, node: _Node) -> str:
        """Source that gives True or False."""
        if node.kind == "bool":
            return node.source
        if node.kind != "path":
            _unsure()
        held, name = self._hold(node)
        return f"({name} if {held}.__class__ is bool else unsure())"

    def result(self, node: _Node) -> str:
        """Source that gives the value as CEL gives it."""
        if node.kind in ("bool", "size"):
            return node.source
        if node.kind != "path":
            _unsure()
        held, name = self._hold(node)
        return f"({name} if {held}.__class__ in scalars else unsure())"

    def _either(self) -> _Node:
        return self._joined("||", "or", self._both)

    def _both(self) -> _Node:
        return self._joined("&&", "and", self._relation)

    def _joined(self, sign: str, word: str, part: Callable[[], _Node]) -> _Node:
        # Python stops at the first part that decides, and so may CEL: what decides outweighs a failure.
        node = part()
        while self._take(sign):
            node = _Node("bool", f"({self.truth(node)} {word} {self.truth(part())})")
        return node

    def _relation(self) -> _Node:
        left = self._unary()
        sign = self._peek()[1]
        if sign not in (*_ORDER, "==", "!=", "in"):
            return left
        self._at += 1
        right = self._unary()
        if sign == "in":
            return self._member(left, right)
        if left.kind == "literal":
            left, right, sign = right, left, _ORDER.get(sign, sign)
        if sign in _ORDER:
            return self._ordered(left, sign, right)
        return self._equal(left, right, negated=sign == "!=")

    def _ordered(self, left: _Node, sign: str, right: _Node) -> _Node:
        number = _is_number(right)
        if left.kind == "size" and number:
            return _Node("bool", f"({left.source} {sign} {self._constant(right.value)})")
        if left.kind != "path" or right.kind != "literal" or not (number or isinstance(right.value, str)):
            _unsure()
        if not number:
            # Code points and their UTF-8 bytes have one order; another type than text is a TypeError.
            return _Node("bool", f"({left.source} {sign} {self._constant(right.value)})")
        held, name = self._hold(left)
        compared = f"{name} {sign} {self._constant(right.value)}"
        return _Node("bool", f"({compared} if {held}.__class__ in numbers else unsure())")

    def _equal(self, left: _Node, right: _Node, *, negated: bool) -> _Node:
        kinds = (left.kind, right.kind)
        if kinds == ("path", "path"):
            source = f"equal({left.source}, {right.source})"
        elif kinds == ("size", "literal") and _is_number(right):
            source = f"{left.source} == {self._constant(right.value)}"
        elif kinds == ("path", "literal"):
            source = self._is(left, right.value)
        else:
            _unsure()
        return _Node("bool", f"(not {source})" if negated else f"({source})")

    def _is(self, path: _Node, value: Any) -> str:
        if value is None or isinstance(value, bool):
            return f"({path.source} is {value})"
        if value in (0, 1):
            held, name = self._hold(path)
            return f"({held} == {self._constant(value)} and {name}.__class__ is not bool)"
        return f"({path.source} == {self._constant(value)})"

    def _member(self, left: _Node, right: _Node) -> _Node:
        if left.kind == "literal" and isinstance(left.value, str) and right.kind == "path":
            held, name = self._hold(right)
            found = f"{self._constant(left.value)} in {name}"
            return _Node("bool", f"({found} if {held}.__class__ in holding else unsure())")
        if left.kind != "path" or right.kind != "list":
            _unsure()
        plain = frozenset(value for value in right.value if not isinstance(value, bool))
        bools = frozenset(value for value in right.value if isinstance(value, bool))
        if not bools and not plain & {0, 1}:
            return _Node("bool", f"({left.source} in {self._constant(plain)})")
        held, name = self._hold(left)
        answers = f"{name} in {self._constant(bools)} if {held}.__class__ is bool"
        return _Node("bool", f"({answers} else {name} in {self._constant(plain)})")

    def _unary(self) -> _Node:
        if self._take("!"):
            return _Node("bool", f"(not {self.truth(self._unary())})")
        if self._take("-"):
            kind, text = self._next()
            if kind not in ("int", "double"):
                _unsure()
            return _number(kind, f"-{text}")
        return self._primary()

    def _primary(self) -> _Node:
        kind, text = self._next()
        if kind in ("int", "double"):
            return _number(kind, text)
        if kind == "text":
            return _Node("literal", "", _unescaped(text))
        if kind == "name":
            return self._named(text)
        if text == "(":
            node = self._either()
            self._expect(")")
            if self._peek()[1] in (".", "["):
                _unsure()
            return node
        if text == "[":
            return self._list()
        return _unsure()

    def _list(self) -> _Node:
        values: list[Any] = []
        while not self._take("]"):
            if values:
                self._expect(",")
            node = self._unary()
            if node.kind != "literal":
                _unsure()
            values.append(node.value)
        return _Node("list", "", values)

    def _named(self, word: str) -> _Node:
        if word in _WORDS and self._peek()[1] != "(":
            return _Node("literal", "", _WORDS[word])
        if word == "has" and self._take("("):
            *parent, last = self._path(self._next()[1])
            self._expect(")")
            if not parent:
                _unsure()
            held, name = self._hold(_Node("path", self._access(parent)))
            found = f"{self._constant(last)} in {name}"
            return _Node("bool", f"({found} if {held}.__class__ is dict else unsure())")
        if word == "size" and self._take("("):
            held, name = self._hold(_Node("path", self._access(self._path(self._next()[1]))))
            self._expect(")")
            return _Node("size", f"(len({name}) if {held}.__class__ in sized else unsure())")
        node = _Node("path", self._access(self._path(word)))
        return self._method(node) if self._peek()[1] == "." else node

    def _path(self, word: str) -> list[str]:
        """The attribute and the keys after it, up to a method."""
        if word == "event":
            self._expect(".")
            word = self._next()[1]
        if word not in _ATTRIBUTES:
            _unsure()
        parts = [word]
        while True:
            if self._take("["):
                kind, text = self._next()
                if kind != "text":
                    _unsure()
                parts.append(_unescaped(text))
                self._expect("]")
            elif self._peek()[1] == "." and self._peek(2)[1] != "(":
                self._at += 1
                kind, text = self._next()
                if kind != "name":
                    _unsure()
                parts.append(text)
            else:
                return parts

    def _access(self, parts: list[str]) -> str:
        return f"event.{parts[0]}" + "".join(f"[{self._constant(part)}]" for part in parts[1:])

    def _method(self, path: _Node) -> _Node:
        self._expect(".")
        method = self._next()[1]
        self._expect("(")
        kind, text = self._next()
        if kind != "text":
            _unsure()
        self._expect(")")
        if self._peek()[1] in (".", "["):
            _unsure()
        argument = _unescaped(text)
        if method in ("startsWith", "endsWith"):
            return _Node("bool", f"{path.source}.{method.lower()}({self._constant(argument)})")
        if method == "matches":
            search = self._constant(_pattern(argument).search)
            return _Node("bool", f"({search}({path.source}) is not None)")
        if method != "contains":
            _unsure()
        held, name = self._hold(path)
        found = f"{self._constant(argument)} in {name}"
        return _Node("bool", f"({found} if {held}.__class__ is str else unsure())")

    def _hold(self, node: _Node) -> tuple[str, str]:
        """Source that evaluates a node and keeps its value, and the name that it is kept under."""
        self._held += 1
        name = f"v{self._held}"
        return f"({name} := {node.source})", name

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else _END

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _take(self, sign: str) -> bool:
        taken = self._peek() == ("sign", sign)
        self._at += taken
        return taken

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            _unsure()


def _unsure() -> NoReturn:
    raise _Unsure


def _equal(left: Any, right: Any) -> bool:
    """Equality of two values of unknown types, as far as Python and CEL agree."""
    if left.__class__ is right.__class__ and left.__class__ in _ALIKE:
        return bool(left == right)
    return _unsure()


def _tokens(expression: str) -> list[tuple[str, str]]:
    tokens, at, text = [], 0, expression.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            _unsure()
        tokens.append((found.lastgroup, found[found.lastgroup]))
        at = found.end()
    return tokens


def _number(kind: str, text: str) -> _Node:
    value = int(text) if kind == "int" else float(text)
    if not -_EXACT < value < _EXACT:
        _unsure()
    return _Node("literal", "", value)


def _is_number(node: _Node) -> bool:
    return node.kind == "literal" and type(node.value) in (int, float)


def _unescaped(quoted: str) -> str:
    """The text that a literal means."""
    text = quoted[1:-1]
    if "\\" not in _ESCAPE.sub("", text):
        return _ESCAPE.sub(_character, text)
    return _unsure()


def _character(escape: re.Match[str]) -> str:
    plain, *numbers, octal = escape.groups()
    if plain:
        return _ESCAPED.get(plain, plain)
    return chr(int(octal, 8) if octal else int(next(filter(None, numbers)), 16))


def _pattern(pattern: str) -> re.Pattern[str]:
    """A pattern that means the same to Python; one that could make Python's search slow stays with RE2."""
    found = _PATTERN.fullmatch(pattern)
    if found is None:
        _unsure()
    repeated = sum(1 for one in _REPEATED.finditer(found["body"]) if one["repeated"])
    if repeated > (1 if found["start"] else 0):
        _unsure()
    try:
        return re.compile(found["start"] + found["body"] + (r"\Z" if found["end"] else ""), re.ASCII)
    except re.error:
        return _unsure()

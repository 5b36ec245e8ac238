"""Events: anything a source can hand over becomes a valid event or an InvalidEvent, never anything else."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import json
import uuid
import zoneinfo
from pathlib import Path, PurePosixPath
from typing import Any

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windsock import values
from windsock.events import Event, InvalidEvent, clean_text, dedup_hash, normalise, parse_json, parse_time

DATA = Path(__file__).parents[1] / "data"
SAMPLES = [path for path in sorted(DATA.rglob("*.json")) if path.is_file()]


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: int
    y: Any = None


@attrs.frozen
class Pair:
    one: int
    two: Any


class Model(pydantic.BaseModel):
    name: str
    when: dt.date


class Struct(msgspec.Struct):
    a: int


class Hostile:
    """Raises whatever way it is looked at, but for repr, which a failing test needs."""

    def _fail(self, *_: object) -> Any:
        raise RuntimeError("do not touch")

    __str__ = __iter__ = __len__ = __eq__ = __bool__ = _fail
    __hash__ = object.__hash__


class HostileList(list[Any]):
    def __iter__(self) -> Any:
        raise KeyError(Hostile())


class EndlessMapping(collections.abc.Mapping[str, int]):
    """Never comes to an end."""

    def __getitem__(self, key: str) -> int:
        return 1

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Any:
        n = 0
        while True:
            n += 1
            yield str(n)


def make(data: Any = None, **attributes: Any) -> Event:
    return Event.make(data, **({"source": "/s", "type": "t", "id": "1"} | attributes))


def check(event: Event) -> None:
    """An event is good if every form that it travels in gives it back."""
    assert Event.decode(event.encode()) == event
    plain = event.as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert Event.from_dict(plain) == event
    for text in (event.id, event.source, event.type, event.key or "", event.subject or ""):
        assert "\0" not in text
        text.encode()


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (-float("inf"), "-Infinity"),
        (2**63 - 1, 2**63 - 1),
        (2**63, str(2**63)),
        (-(2**70), str(-(2**70))),
        (True, True),
        ("a\0b", "a\\u0000b"),
        ("caf\udce9", "caf\\udce9"),
        ({"\ud800": 1}, {"\\ud800": 1}),
        ("😀", "😀"),
        (b"\xff", "/w=="),
        (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "2026-01-02T03:04:05+00:00"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.time(3, 4), "03:04:00"),
        (dt.timedelta(minutes=1), 60.0),
        (decimal.Decimal("1.10"), "1.10"),
        (decimal.Decimal("NaN"), "NaN"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("/a/b"), "/a/b"),
        ((1, (2,)), [1, [2]]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset("ba"), ["a", "b"]),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        ({1: "a", None: "b", 2.5: "c"}, {"1": "a", "null": "b", "2.5": "c"}),
        ({True: 1, False: 0}, {"true": 1, "false": 0}),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.UserDict(a=1), {"a": 1}),
        (Point(1, Point(2)), {"x": 1, "y": {"x": 2, "y": None}}),
        (Pair(1, [2]), {"one": 1, "two": [2]}),
        (Model(name="n", when=dt.date(2026, 1, 1)), {"name": "n", "when": "2026-01-01"}),
        (Struct(7), {"a": 7}),
    ],
)
def test_values_become_plain_json(value: Any, plain: Any) -> None:
    """Every kind of value that real systems hand over has one plain form."""
    event = make({"v": value})
    assert event.data == {"v": plain}
    check(event)


def cycle() -> list[Any]:
    ring: list[Any] = []
    ring.extend([ring, ring, {"again": ring}])
    return ring


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def laughs() -> Any:
    value: Any = "ha"
    for _ in range(30):
        value = [value] * 10
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), "builtins.object"),
        (iter([1]), "list_iterator"),
        ((n for n in [1]), "generator"),
        (Point, "builtins.type"),
        (1j, "complex"),
        (Hostile(), "Hostile"),
        (Point(1, HostileList([1])), "KeyError"),
        ({(1, 2): 3}, "a tuple where one text or number is needed"),
        ({1: "a", "1": "b"}, "two keys"),
        ({Hostile(): 1}, "Hostile"),
        (cycle(), "refers to itself|nested deeper"),
        (nested(101), "nested deeper than 100 levels"),
        (10**5000, "ValueError"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_json_cannot_carry_is_refused_with_its_name(value: Any, reason: str) -> None:
    """Objects that are no data raise InvalidEvent that says which, whatever they do when looked at."""
    with pytest.raises(InvalidEvent, match=reason):
        make(value)


@pytest.mark.parametrize("value", [laughs, EndlessMapping])
def test_what_has_no_end_is_refused(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small object that unfolds to a huge one stops at the bound (lowered here for speed)."""
    monkeypatch.setattr(values, "_MAX_VALUES", 5000)
    with pytest.raises(InvalidEvent, match="more than 5000 values"):
        make(value())


def test_nesting_up_to_the_limit_is_kept() -> None:
    """A hundred levels still go the whole way."""
    check(make(nested(100)))


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"{}", bytearray(b"ab"), memoryview(b"abc")[::2]])
def test_bytes_stay_bytes(data: Any) -> None:
    """Bytes as the whole of the data are kept as they are, JSON or not."""
    event = make(data)
    assert event.binary
    assert event.data == bytes(data)
    check(event)


def test_a_released_buffer_is_refused() -> None:
    """A buffer that is gone is an InvalidEvent."""
    view = memoryview(b"abc")
    view.release()
    with pytest.raises(InvalidEvent, match="cannot be read"):
        make(view)


@pytest.mark.parametrize(
    "name", ["id", "source", "type", "subject", "key", "sequence", "correlation", "cause"]
)
@pytest.mark.parametrize(
    ("value", "text"),
    [("a\0b", "a\\u0000b"), ("\udce9", "\\udce9"), (b"k\xff", "k\\xff"), (7, "7"), (uuid.UUID(int=0), None)],
)
def test_text_attributes_are_cleaned(name: str, value: Any, text: str | None) -> None:
    """What no text column can hold is escaped, and what is plainly text-like becomes text."""
    event = make(**{name: value})
    assert getattr(event, name) == (text or str(value))
    check(event)


@pytest.mark.parametrize("name", ["id", "source", "type", "key", "subject"])
@pytest.mark.parametrize("value", [Hostile(), {"a": 1}, [1], object()], ids=lambda v: type(v).__name__)
def test_attributes_that_cannot_be_text_are_named(name: str, value: Any) -> None:
    """An attribute that is no text raises InvalidEvent with its name."""
    with pytest.raises(InvalidEvent, match=f"attribute {name!r}"):
        make(**{name: value})


@pytest.mark.parametrize("name", ["source", "type"])
@pytest.mark.parametrize("value", ["", None, b""])
def test_required_attributes_must_not_be_empty(name: str, value: Any) -> None:
    """Source and type have to say something."""
    with pytest.raises(InvalidEvent, match=f"attribute {name!r} is missing or empty"):
        make(**{name: value})


@pytest.mark.parametrize("name", ["id", "source", "type", "key"])
def test_identities_are_short_enough_for_an_index(name: str) -> None:
    """What the log indexes is at most 2048 bytes in UTF-8."""
    check(make(**{name: "é" * 1024}))
    with pytest.raises(InvalidEvent, match=f"attribute {name!r} is longer than 2048 bytes"):
        make(**{name: "é" * 1025})


def test_an_event_without_an_id_gets_its_own() -> None:
    """Two events without an id are two events."""
    assert make(id=None).id != make(id="").id


def test_empty_optional_attributes_are_absent() -> None:
    """An empty subject or key is none."""
    event = make(subject="", key="")
    assert (event.subject, event.key) == (None, None)


def test_the_default_content_type_is_left_out() -> None:
    """JSON is what an event holds unless it says otherwise, bytes are octets."""
    assert make({}, datacontenttype="application/json").datacontenttype is None
    assert make(b"", datacontenttype="application/octet-stream").datacontenttype is None
    assert make(b"", datacontenttype="application/json").datacontenttype == "application/json"


def test_extensions_are_text_integers_or_booleans() -> None:
    """Extensions keep the types that CloudEvents knows; the rest becomes text, and null is absent."""
    given = {"a": "x", "b": 5, "c": True, "d": 2**31, "e": 1.5, "f": None, "g": [1], "h": dt.date(2026, 1, 1)}
    event = make(extensions=given)
    expected = {"a": "x", "b": 5, "c": True, "d": "2147483648", "e": "1.5", "g": "[1]", "h": "2026-01-01"}
    assert event.extensions == expected
    check(event)


@pytest.mark.parametrize(
    "name", ["Upper", "with-dash", "with_underscore", "", "é", "id", "partitionkey", "data"]
)
def test_extension_names_are_checked(name: str) -> None:
    """An extension has a CloudEvents name that no attribute has."""
    with pytest.raises(InvalidEvent, match=f"extension {name!r}"):
        make(extensions={name: "x"})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05+00:00"),
        ("2026-01-02t03:04:05z", "2026-01-02T03:04:05+00:00"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T03:04:05+02:00"),
        ("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05.123457+00:00"),
        ("2026-01-02T03:04:05", "2026-01-02T03:04:05+00:00"),
        (0, "1970-01-01T00:00:00+00:00"),
        (1.5, "1970-01-01T00:00:01.500000+00:00"),
        (dt.date(2026, 1, 2), "2026-01-02T00:00:00+00:00"),
        (dt.datetime(2026, 1, 2), "2026-01-02T00:00:00+00:00"),  # noqa: DTZ001 - naive is the case
        (dt.datetime(2026, 7, 2, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")), "2026-07-02T00:00:00+02:00"),
        (
            dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
            "2026-10-25T02:30:00+01:00",
        ),
        (
            dt.datetime(1890, 1, 1, tzinfo=dt.timezone(dt.timedelta(minutes=53, seconds=28))),
            "1889-12-31T23:06:32+00:00",
        ),
    ],
)
def test_times_become_aware_and_keep_their_offset(value: Any, text: str) -> None:
    """A time is that instant, with its offset where RFC 3339 can write it."""
    event = make(time=value)
    assert event.time is not None
    assert event.time.isoformat() == text
    check(event)


class BadZone(dt.tzinfo):
    def utcoffset(self, _: dt.datetime | None) -> dt.timedelta:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "value",
    [
        "",
        "yesterday",
        "2026-13-01T00:00:00Z",
        float("nan"),
        1e300,
        True,
        [],
        Hostile(),
        dt.datetime(2026, 1, 1, tzinfo=BadZone()),
        dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=90))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_time_is_refused(value: Any) -> None:
    """A time that is none raises InvalidEvent that names the attribute."""
    with pytest.raises(InvalidEvent, match="attribute 'time' is not a timestamp"):
        parse_time(value)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff",
        b'{"id":1}',
        b'{"id":"1","source":"s"}',
        b'{"id":"1","source":"s","type":"t","binary":true,"data":"%%%"}',
        b'{"id":"1","source":"s","type":"t","binary":true,"data":5}',
        b'{"id":"1","source":"s","type":"t","time":"x"}',
        b'{"id":"1","source":"s","type":"t","data":' + b"[" * 5000,
        b'{"id":"1","source":"s","type":"t","data":"\\ud800"}',
    ],
)
def test_corrupt_bodies_are_invalid_events(body: bytes) -> None:
    """What encode did not write raises InvalidEvent when read."""
    with pytest.raises(InvalidEvent, match="stored event cannot be read"):
        Event.decode(body)


@settings(deadline=None)
@given(st.data())
def test_flipped_bytes_never_crash_the_reader(draw: st.DataObject) -> None:
    """A stored event with any one byte changed is an event or an InvalidEvent."""
    body = bytearray(make({"a": [1, "é", None]}, key="k", time=0, extensions={"x": 1}).encode())
    body[draw.draw(st.integers(0, len(body) - 1))] = draw.draw(st.integers(0, 255))
    try:
        Event.decode(bytes(body))
    except InvalidEvent:
        pass


@pytest.mark.parametrize(
    "value", [{}, {"id": 1}, {"id": "1", "source": "s", "type": "t", "binary": True, "data": 1}]
)
def test_a_dict_that_is_no_event_is_refused(value: dict[str, Any]) -> None:
    """from_dict raises InvalidEvent for what as_dict did not return."""
    with pytest.raises(InvalidEvent, match="not an event"):
        Event.from_dict(value)


def test_decode_says_where_in_the_log_it_was_found() -> None:
    """Position and attempt come from the reader, not from the body."""
    event = Event.decode(make(b"\x00").encode(), seq=5, attempt=2)
    assert (event.seq, event.attempt, event.data) == (5, 2, b"\x00")


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'"\\ud800"', "\ud800"),
        (b"[1e400]", [float("inf")]),
        (b"12345678901234567890123", 12345678901234567890123),
    ],
)
def test_json_that_strict_readers_refuse_is_read(body: bytes, value: Any) -> None:
    """A byte order mark, a lone surrogate and numbers of any size do not cost an event."""
    assert parse_json(body) == value
    check(make(parse_json(body)))


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5000, b"{'a': 1}"])
def test_what_is_not_json_is_said_so(body: bytes) -> None:
    """Broken JSON raises InvalidEvent."""
    with pytest.raises(InvalidEvent, match="not JSON"):
        parse_json(body)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_real_events_go_round(path: Path) -> None:
    """What real systems send is kept to the last value."""
    payload = json.loads(path.read_bytes())
    event = make(parse_json(path.read_bytes()))
    assert event.data == payload
    check(event)


def test_real_change_events_go_round() -> None:
    """Debezium's records, tombstones included, are kept to the last value."""
    lines = (DATA / "debezium" / "postgres-live.jsonl").read_bytes().splitlines()
    assert lines
    for line in lines:
        event = make(parse_json(line))
        assert event.data == json.loads(line)
        check(event)


surrogates = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
keys = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | surrogates
    | st.binary(max_size=8)
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.complex_numbers()
    | st.sampled_from([Colour.RED, Level.HIGH, object(), HostileList, Colour, (1, 2)])
)
leaves = keys | st.decimals() | st.builds(Hostile) | st.builds(Pair, st.integers(), st.integers())
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner, max_size=4)
        | st.builds(Point, inner, inner)
        | st.builds(HostileList)
        | st.builds(iter, st.lists(inner, max_size=2))
        | st.frozensets(keys, max_size=3)
    ),
    max_leaves=20,
)


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=anything,
    attributes=st.fixed_dictionaries(
        {"source": leaves, "type": leaves},
        optional=dict.fromkeys(
            ("id", "subject", "key", "sequence", "traceparent", "cause", "dataschema", "time"), leaves
        )
        | {"extensions": st.dictionaries(st.text("abcXYZ019-", max_size=4), leaves, max_size=3)},
    ),
)
def test_anything_becomes_an_event_or_an_invalid_event(data: Any, attributes: dict[str, Any]) -> None:
    """Whatever is handed over, make returns an event that every form gives back, or raises InvalidEvent."""
    try:
        event = Event.make(data, **attributes)
    except InvalidEvent as error:
        str(error).encode()
    else:
        check(event)


@settings(deadline=None)
@given(anything)
def test_normalising_twice_changes_nothing(value: Any) -> None:
    """Plain values are their own plain form."""
    try:
        plain = normalise(value)
    except InvalidEvent:
        return
    assert normalise(plain) == plain


@settings(deadline=None)
@given(surrogates)
def test_clean_text_can_be_stored(text: str) -> None:
    """Cleaned text is UTF-8 without NUL, and clean text is left alone."""
    clean = clean_text(text)
    assert "\0" not in clean
    assert clean.encode().decode() == clean
    assert clean_text(clean) == clean
    if "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text):
        assert clean == text


def test_texts_that_differ_stay_different() -> None:
    """Two files whose names are broken in different ways do not become one event."""
    assert clean_text("caf\udce9.csv") != clean_text("caf\udce8.csv")


def test_dedup_hashes_depend_on_scope_and_key() -> None:
    """The same key in two scopes is two keys."""
    assert len(dedup_hash("a", "k")) == 16
    assert len({dedup_hash("a", "k"), dedup_hash("b", "k"), dedup_hash("a", "l")}) == 3
    assert dedup_hash("a", "k") == dedup_hash("a", "k")

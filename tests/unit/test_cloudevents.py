"""CloudEvents wire forms: the three modes, in and out, and the awkward parts of the specification."""

from __future__ import annotations

import base64
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from windsock.cloudevents import (
    BATCH,
    STRUCTURED,
    Parsed,
    UnsupportedFormat,
    data_of,
    from_batch,
    from_http,
    from_structured,
    to_batch,
    to_binary,
    to_structured,
)
from windsock.events import Event, InvalidEvent

DATA = Path(__file__).parents[1] / "data"
REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
HEADERS = {f"ce-{name}": value for name, value in REQUIRED.items()}


def read(**members: Any) -> Event:
    """The event behind the required attributes and these."""
    return from_structured(json.dumps(REQUIRED | members).encode())


def one(parsed: Parsed) -> Event:
    assert parsed.dead == []
    [event] = parsed.events
    return event


def test_every_attribute_has_its_place() -> None:
    """Context attributes, Windsock's own and unknown extensions each land where they belong."""
    event = read(
        time="2026-01-02T03:04:05+02:00",
        subject="x",
        dataschema="urn:schema",
        datacontenttype="application/vnd.shop+json",
        data={"a": 1},
        partitionkey="k",
        sequence="7",
        traceparent="00-aa-bb-01",
        correlationid="c",
        causationid="w",
        myext="kept",
        n=5,
        flag=True,
    )
    assert event == Event(
        id="1",
        source="/s",
        type="t",
        time=dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        subject="x",
        dataschema="urn:schema",
        datacontenttype="application/vnd.shop+json",
        data={"a": 1},
        key="k",
        sequence="7",
        traceparent="00-aa-bb-01",
        correlation="c",
        cause="w",
        extensions={"myext": "kept", "n": 5, "flag": True},
    )


def test_written_names_are_those_of_cloudevents() -> None:
    """What other systems read has CloudEvents' names, and the content type is spelled out."""
    event = Event.make(
        {"a": 1}, id="1", source="/s", type="t", key="k", sequence=7, correlation="c", cause="w", time=0
    )
    assert json.loads(to_structured(event)) == REQUIRED | {
        "time": "1970-01-01T00:00:00Z",
        "datacontenttype": "application/json",
        "data": {"a": 1},
        "partitionkey": "k",
        "sequence": "7",
        "correlationid": "c",
        "causationid": "w",
    }


def test_only_the_required_attributes_are_required() -> None:
    """An event may have no time, no subject and no data."""
    event = read()
    assert event == Event(id="1", source="/s", type="t")
    assert json.loads(to_structured(event)) == REQUIRED


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
@pytest.mark.parametrize("value", ["", None, 5, ["x"]])
def test_required_attributes_are_named_when_wrong(name: str, value: Any) -> None:
    """A required attribute that is missing, empty or no text raises InvalidEvent with its name."""
    with pytest.raises(InvalidEvent, match=f"attribute '{name}'"):
        read(**{name: value})


@pytest.mark.parametrize("version", ["0.3", "0.2", "1.1", "2.0"])
def test_other_versions_are_refused_by_name(version: str) -> None:
    """Only CloudEvents 1.0 is read; the message says which version came."""
    with pytest.raises(InvalidEvent, match=f"'specversion' is '{version}': only '1.0' is read"):
        read(specversion=version)


@pytest.mark.parametrize(
    ("members", "data", "binary"),
    [
        ({}, None, False),
        ({"data": None}, None, False),
        ({"data": "text"}, "text", False),
        ({"data": 5}, 5, False),
        ({"data": False}, False, False),
        ({"data": []}, [], False),
        ({"data": '{"a": 1}', "datacontenttype": "application/json"}, '{"a": 1}', False),
        ({"data": "<a/>", "datacontenttype": "text/xml"}, "<a/>", False),
        ({"data": {"a": 1}, "datacontenttype": "text/plain"}, {"a": 1}, False),
        ({"data_base64": "/w=="}, b"\xff", True),
        ({"data_base64": ""}, b"", True),
        ({"data_base64": "/w==", "data": None}, b"\xff", True),
        ({"data_base64": None, "data": 1}, 1, False),
        ({"data_base64": "e30=", "datacontenttype": "application/json"}, b"{}", True),
    ],
)
def test_data_in_structured_mode(members: dict[str, Any], data: Any, binary: bool) -> None:
    """Data is the JSON value as it stands, or the bytes of data_base64; null is absent."""
    event = read(**members)
    assert (event.data, event.binary) == (data, binary)
    assert from_structured(to_structured(event)) == event


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"data": 1, "data_base64": "e30="}, "both present"),
        ({"data_base64": "%"}, "'data_base64' is not base64"),
        ({"data_base64": "é"}, "'data_base64' is not base64"),
        ({"data_base64": 5}, "'data_base64' is not base64"),
        ({"time": "yesterday"}, "'time' is not a timestamp"),
        ({"time": 5}, "'time' must be text"),
        ({"subject": 5}, "'subject' must be text"),
        ({"datacontenttype": {}}, "'datacontenttype' must be text"),
        ({"myExt": "x"}, "'myExt' is not named in lower-case"),
        ({"my-ext": "x"}, "'my-ext' is not named in lower-case"),
        ({"": "x"}, "'' is not named in lower-case"),
        ({"ext": 1.5}, "'ext' must be text, an integer or a boolean"),
        ({"ext": {}}, "'ext' must be text, an integer or a boolean"),
        ({"ext": [1]}, "'ext' must be text, an integer or a boolean"),
        ({"partitionkey": {}}, "'partitionkey' must be text"),
        ({"id": "x" * 3000}, "'id' is longer"),
    ],
)
def test_contradictions_and_wrong_types_are_named(members: dict[str, Any], reason: str) -> None:
    """What the specification forbids raises InvalidEvent that names the attribute."""
    with pytest.raises(InvalidEvent, match=reason):
        read(**members)


def test_integers_for_text_extensions_are_taken() -> None:
    """A sender that counts with numbers is understood."""
    event = read(sequence=7, partitionkey=12)
    assert (event.sequence, event.key) == ("7", "12")


def test_integers_past_32_bits_are_kept_as_text() -> None:
    """CloudEvents' integers have 32 bits; a larger one is not lost."""
    assert read(big=2**40).extensions == {"big": str(2**40)}


def test_nanoseconds_are_rounded() -> None:
    """A time with nine digits is read to the microsecond."""
    event = read(time="2026-01-01T00:00:00.123456789Z")
    assert event.time == dt.datetime(2026, 1, 1, microsecond=123457, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON in UTF-8"),
        (b"{", "not JSON in UTF-8"),
        (b"\xff\xfe", "not JSON in UTF-8"),
        ('{"id": "\xe9"}'.encode("latin-1"), "not JSON in UTF-8"),
        (b"[" * 100_000, "not JSON in UTF-8"),
        (b"[]", "is a JSON object"),
        (b'"x"', "is a JSON object"),
        (b'{"specversion":"1.0","id":"1","id":"2","source":"/s","type":"t"}', "occurs twice"),
    ],
)
def test_bodies_that_are_no_event(body: bytes, reason: str) -> None:
    """A structured body that is no JSON object, or an ambiguous one, raises InvalidEvent."""
    with pytest.raises(InvalidEvent, match=reason):
        from_structured(body)


def test_a_byte_order_mark_is_skipped() -> None:
    """A body that begins with a byte order mark is read."""
    assert from_structured(b"\xef\xbb\xbf" + to_structured(read(data=1))).data == 1


def test_duplicate_names_inside_data_take_the_last() -> None:
    """Inside data the last of two equal names counts, as in every JSON reader."""
    body = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1,"a":2}}'
    assert from_structured(body).data == {"a": 2}


def test_a_dict_can_be_read() -> None:
    """A decoded object is taken as well, and one with odd names is refused."""
    assert from_structured(REQUIRED) == read()
    with pytest.raises(InvalidEvent, match="attribute 5"):
        from_structured({**REQUIRED, 5: "x"})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "content_type",
    [
        STRUCTURED,
        "Application/CloudEvents+JSON",
        f"{STRUCTURED}; charset=utf-8",
        f'{STRUCTURED};charset="UTF-8"',
    ],
)
def test_structured_mode_is_detected(content_type: str) -> None:
    """The content type decides the mode, whatever its case and parameters."""
    assert one(from_http({"Content-Type": content_type}, to_structured(read(data=1)))).data == 1


def test_structured_mode_in_another_charset() -> None:
    """A charset that is named is believed."""
    body = to_structured(read(data="é")).decode().encode("utf-16")
    assert one(from_http({"content-type": f"{STRUCTURED}; charset=utf-16"}, body)).data == "é"


@pytest.mark.parametrize("charset", ["ebcdic-nonsense", "idna", "hex", "utf-7"])
def test_unknown_charsets_are_refused(charset: str) -> None:
    """A charset that is not read is an InvalidEvent with the remedy."""
    with pytest.raises(InvalidEvent, match="send UTF-8"):
        from_http({"content-type": f"{STRUCTURED}; charset={charset}"}, b"{}")


@pytest.mark.parametrize("kind", ["application/cloudevents+avro", "application/cloudevents-batch+xml"])
def test_other_formats_are_unsupported(kind: str) -> None:
    """An event format that is not JSON is refused as such, so that the gateway can answer 415."""
    with pytest.raises(UnsupportedFormat, match="application/cloudevents"):
        from_http({"content-type": kind}, b"")


def test_what_is_no_cloudevent_is_told_how_to_be_one() -> None:
    """A plain request names the headers that it lacks."""
    with pytest.raises(InvalidEvent, match="ce-specversion"):
        from_http({"content-type": "application/json"}, b"{}")


def test_a_batch_keeps_the_neighbours_of_a_bad_element() -> None:
    """Each bad element becomes a dead letter with its own bytes; the good ones are events."""
    bad = [{"id": "no type"}, "text", None, [1], REQUIRED | {"data": 1, "data_base64": "AA=="}]
    good = [REQUIRED | {"id": str(n)} for n in range(6)]
    mixed = [element for pair in zip(good, [*bad, REQUIRED], strict=True) for element in pair]
    parsed = from_http({"content-type": BATCH}, json.dumps(mixed).encode())
    assert [event.id for event in parsed.events] == ["0", "1", "2", "3", "4", "5", "1"]
    assert [json.loads(letter.body) for letter in parsed.dead] == bad
    assert {letter.stage for letter in parsed.dead} == {"parse"}
    assert "'specversion'" in parsed.dead[0].reason


def test_a_batch_with_poison_is_still_a_batch() -> None:
    """Elements too deep or with text that nobody can encode do not cost the others."""
    deep = '{"specversion":"1.0","id":"1","source":"/s","type":"t","data":' + "[" * 300 + "]" * 300 + "}"
    parsed = from_batch(f'[{deep}, {json.dumps(REQUIRED)}, {{"\\ud800": "\\ud800"}}, {deep}]'.encode())
    assert [len(parsed.events), len(parsed.dead)] == [1, 3]


def test_an_empty_batch_is_valid() -> None:
    """No events are no mistake."""
    assert from_batch(b"[]") == Parsed([], [])
    assert to_batch([]) == b"[]"


@pytest.mark.parametrize("body", [b"{}", b"null", b"[", b"\xff"])
def test_what_is_no_array_is_no_batch(body: bytes) -> None:
    """A batch that is not a JSON array has nothing to keep."""
    with pytest.raises(InvalidEvent):
        from_batch(body)


def test_header_names_are_case_insensitive() -> None:
    """Proxies may write header names as they like."""
    headers = {name.upper(): value for name, value in HEADERS.items()} | {"CE-MyExt": "x", "X-Other": "y"}
    event = one(from_http(headers, b""))
    assert (event.id, event.extensions, event.data) == ("1", {"myext": "x"}, None)


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("a b", "a%20b"),
        ('say "hi"', "say%20%22hi%22"),
        ("100%", "100%25"),
        ("Euro € 😀", "Euro%20%E2%82%AC%20%F0%9F%98%80"),
        ("line\nbreak\t\x7f", "line%0Abreak%09%7F"),
        ("!#$&'()*+,-./:;<=>?@[\\]^_`{|}~", "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    ],
)
def test_header_values_are_percent_encoded(value: str, header: str) -> None:
    """Exactly what the HTTP binding names is encoded, and comes back."""
    headers, body = to_binary(Event.make(None, id="1", source="/s", type="t", subject=value))
    assert headers["ce-subject"] == header
    assert one(from_http(headers, body)).subject == value


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ('"a b"', "a b"),
        (r'"a \"b\" \\c"', r'a "b" \c'),
        ("100%", "100%"),
        ("%zz", "%zz"),
        ("é", "é"),
        ("a%2", "a%2"),
    ],
)
def test_lenient_header_values(header: str, value: str) -> None:
    """Quoted values of older senders and stray percent signs are understood."""
    assert one(from_http(HEADERS | {"ce-subject": header}, b"")).subject == value


def test_header_values_that_are_not_utf8_are_named() -> None:
    """Percent-encoded bytes that are no UTF-8 raise InvalidEvent with the attribute."""
    with pytest.raises(InvalidEvent, match="attribute 'subject' is not percent-encoded UTF-8"):
        from_http(HEADERS | {"ce-subject": "%FF"}, b"")


@pytest.mark.parametrize("name", ["ce-a_b", "ce-a-b", "ce-"])
def test_header_names_must_be_attribute_names(name: str) -> None:
    """A ce- header that names no possible attribute is refused."""
    with pytest.raises(InvalidEvent, match="is not named in lower-case"):
        from_http(HEADERS | {name: "x"}, b"")


@pytest.mark.parametrize(
    ("content_type", "body", "data"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("application/json; charset=utf-8", '"é"'.encode(), "é"),
        ("application/json; charset=iso-8859-1", '"é"'.encode("latin-1"), "é"),
        ("application/json", b"\xef\xbb\xbf1", 1),
        ("application/json", b"null", None),
        ("application/json", b"", None),
        ("application/vnd.x+json", b"[1]", [1]),
        ("text/json", b"[1]", [1]),
        ("text/plain", "é".encode(), "é"),
        ("text/plain; charset=windows-1252", b"\x80", "€"),
        ("text/plain", b"\xff", b"\xff"),
        ("text/plain; charset=nonsense", b"a", b"a"),
        ("application/xml", b"<a/>", "<a/>"),
        ("application/atom+xml", b"<a/>", "<a/>"),
        ("application/x-www-form-urlencoded", b"a=1", "a=1"),
        ("application/octet-stream", b"{}", b"{}"),
        ("image/png", b"\x89PNG", b"\x89PNG"),
        ("image/png", b"", None),
        (None, b'{"a": 1}', {"a": 1}),
        (None, b"\xff", b"\xff"),
        (None, b"", None),
        ("; ;=;charset", b"1", 1),
    ],
)
def test_bodies_are_read_as_their_content_type_says(content_type: str | None, body: bytes, data: Any) -> None:
    """JSON, text and bytes are told apart by the content type and the charset."""
    assert data_of(content_type, body) == data
    headers = HEADERS | ({"Content-Type": content_type} if content_type else {})
    event = one(from_http(headers, body))
    assert event.data == data
    assert event.binary == isinstance(data, bytes)


@pytest.mark.parametrize("body", [b"{", b"\xff"])
def test_json_that_is_none_is_refused_in_binary_mode(body: bytes) -> None:
    """A body that claims to be JSON and is not raises InvalidEvent."""
    with pytest.raises(InvalidEvent, match="data under content type 'application/json' is not JSON"):
        from_http(HEADERS | {"content-type": "application/json"}, body)


def test_the_content_type_header_is_the_datacontenttype() -> None:
    """Binary mode has one content type; a ce-datacontenttype counts only if that is missing."""
    event = one(from_http(HEADERS | {"content-type": "text/csv", "ce-datacontenttype": "x/y"}, b"a"))
    assert event.datacontenttype == "text/csv"
    event = one(from_http(HEADERS | {"ce-datacontenttype": "text/csv"}, b"a"))
    assert (event.datacontenttype, event.data) == ("text/csv", "a")


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        ("text", "image/png"),
        ({"a": 1}, "text/plain"),
        (b"abc", "text/plain"),
        (b"{}", "application/json"),
        (b"{", "application/json"),
        ("", "text/plain"),
        (b"", None),
        ("€", "text/plain; charset=iso-8859-1"),
        ("a", "text/plain\r\nx-injected: 1"),
        ("a", "text/plain "),
        ({}, "application/cloudevents+json"),
    ],
)
def test_what_binary_mode_cannot_carry_goes_structured(data: Any, content_type: str | None) -> None:
    """Data that would come back as something else is sent in the mode that keeps it."""
    event = Event.make(data, id="1", source="/s", type="t", datacontenttype=content_type)
    headers, body = to_binary(event)
    assert headers == {"content-type": STRUCTURED}
    assert one(from_http(headers, body)) == event


def test_binary_mode_carries_data_as_the_body() -> None:
    """Attributes are headers, data is the body, and the content type is always said."""
    event = Event.make({"a": 1}, id="1", source="/s", type="t", key="k", extensions={"n": 5, "flag": True})
    assert to_binary(event) == (
        HEADERS
        | {"ce-partitionkey": "k", "ce-n": "5", "ce-flag": "true", "content-type": "application/json"},
        b'{"a":1}',
    )
    headers, body = to_binary(Event.make(b"\xff", id="1", source="/s", type="t"))
    assert (headers["content-type"], body) == ("application/octet-stream", b"\xff")


def test_base64_is_what_others_write() -> None:
    """Bytes travel as plain base64 in structured mode."""
    event = Event.make(b"\xfb\xff", id="1", source="/s", type="t")
    assert json.loads(to_structured(event))["data_base64"] == base64.b64encode(b"\xfb\xff").decode()


def test_real_events_survive_every_mode() -> None:
    """What real systems send comes back from structured, binary and batch mode."""
    events = [
        Event.make(json.loads(path.read_bytes()), source="/s", type="t", subject=path.name)
        for path in sorted(DATA.rglob("*.json"))
    ]
    assert len(events) > 5
    assert from_batch(to_batch(events)) == Parsed(events)
    for event in events:
        assert from_structured(to_structured(event)) == event
        assert one(from_http(*to_binary(event))) == event


text = st.text(st.characters(codec="utf-8"), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=10,
)
content_types = (
    st.none()
    | st.sampled_from(
        [
            "application/json",
            "application/json; charset=utf-16",
            "application/vnd.x+json",
            "text/plain",
            "text/plain; charset=iso-8859-1",
            "text/plain; charset=nonsense",
            "application/xml",
            "application/octet-stream",
            "image/png",
            "application/cloudevents+json",
        ]
    )
    | text
)
reserved = {"id", "source", "type", "time", "data", "subject", "sequence", "specversion"}
extension_names = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8).filter(
    lambda name: name not in reserved
)
events = st.builds(
    Event.make,
    json_values | st.binary(max_size=12),
    id=text.filter(bool),
    source=text.filter(bool),
    type=text.filter(bool),
    time=st.none() | st.datetimes(timezones=st.none() | st.timezones()).filter(lambda t: 1 < t.year < 9999),
    datacontenttype=content_types,
    extensions=st.dictionaries(extension_names, text | st.booleans() | st.integers(), max_size=3),
    **dict.fromkeys(
        ("subject", "dataschema", "key", "sequence", "traceparent", "correlation", "cause"), st.none() | text
    ),
)


@settings(deadline=None)
@given(events)
def test_structured_mode_is_lossless(event: Event) -> None:
    """Every event comes back equal from structured mode."""
    assert from_structured(to_structured(event)) == event
    assert one(from_http({"content-type": STRUCTURED}, to_structured(event))) == event


@settings(deadline=None)
@given(st.lists(events, max_size=4))
def test_batch_mode_is_lossless(batch: list[Event]) -> None:
    """Every list of events comes back equal from batch mode."""
    assert from_http({"content-type": BATCH}, to_batch(batch)) == Parsed(batch)


@settings(deadline=None)
@given(events)
def test_binary_mode_is_lossless(event: Event) -> None:
    """Every event comes back equal from binary mode, but that headers carry extensions as their text."""
    headers, body = to_binary(event)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    expected = event
    if headers.get("content-type") != STRUCTURED:
        written = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in event.extensions.items()}
        expected = replace(event, extensions=written)
    assert one(from_http(headers, body)) == expected


header_texts = st.text(max_size=6)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*HEADERS, "ce-x", "ce-time", "content-type"]) | header_texts, header_texts
    ),
    st.binary(max_size=20),
    st.booleans(),
)
def test_any_request_is_parsed_or_invalid(headers: dict[str, str], body: bytes, complete: bool) -> None:
    """Whatever arrives over HTTP, from_http returns events or raises InvalidEvent, never anything else."""
    try:
        parsed = from_http(headers | HEADERS if complete else headers, body)
    except InvalidEvent as error:
        str(error).encode()
    else:
        assert all(Event.decode(event.encode()) == event for event in parsed.events)


members = st.dictionaries(
    st.sampled_from([*REQUIRED, "data", "data_base64", "time", "x"]) | st.text(max_size=3),
    json_values,
    max_size=4,
)


@settings(deadline=None)
@given(st.lists(members | json_values, max_size=4))
def test_any_json_is_parsed_or_dead(elements: list[Any]) -> None:
    """Whatever stands in a batch becomes an event or a dead letter, one for one."""
    merged = [REQUIRED | element if isinstance(element, dict) else element for element in elements]
    parsed = from_batch(json.dumps(merged).encode())
    assert len(parsed.events) + len(parsed.dead) == len(elements)

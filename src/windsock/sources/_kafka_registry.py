"""Confluent's wire format: a zero byte, the number of a schema in its registry, and the value.

The three kinds of schema are read: Avro, JSON Schema and Protobuf, with references to other schemas. A schema
is fetched once and kept; it never changes under its number. A value is decoded, not validated: its producer
has done that (use the watcher's ``schema`` to demand more).
"""

from __future__ import annotations

import base64
import binascii
import importlib
import io
import re
import ssl
import struct
import tempfile
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx
import msgspec

from windsock.connections import Connection
from windsock.events import InvalidEvent, SourceError, parse_json
from windsock.sources._kafka_settings import REGISTRY_PREFIX
from windsock.values import describe

__all__ = ["MAGIC", "Registry", "registry_of", "schema_number"]

MAGIC = b"\0"
_HEADER = struct.Struct(">bI")
_TIMEOUT = 10.0
_WELL_KNOWN = re.compile(r"google/protobuf/[a-z_]+\.proto")
"""What every Protobuf library has with it, so that no registry holds it."""

Decode = Callable[[bytes], Any]


class _Reference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class _Schema(msgspec.Struct, frozen=True, rename={"kind": "schemaType", "text": "schema"}):
    text: str
    kind: str = "AVRO"
    references: list[_Reference] | None = None


def schema_number(value: bytes) -> int | None:
    """The number of the schema that a value was written with, or None if it is not in the wire format."""
    if len(value) < _HEADER.size or not value.startswith(MAGIC):
        return None
    number: int = _HEADER.unpack_from(value)[1]
    return number


def registry_of(kafka: Connection, own: Connection | None) -> Registry | None:
    """The registry that its own Connection names, or else the extras of Kafka's; None if neither does."""
    connection = own or kafka
    extra = {name.removeprefix(REGISTRY_PREFIX): value for name, value in connection.extra.items()
             if own or name.startswith((REGISTRY_PREFIX, "basic.auth.", "bearer.auth."))}  # fmt: skip
    urls = [url.strip() for url in str(extra.get("url") or "").split(",") if url.strip()]
    if not urls and own is not None:
        urls = [_address(own)]
    if not urls:
        return None
    login, _, password = str(extra.get("basic.auth.user.info") or "").partition(":")
    if own is not None and own.login:
        login, password = own.login, own.password or ""
    token = extra.get("bearer.auth.token")
    client = httpx.Client(
        auth=(login, password) if login else None,
        headers={"Authorization": f"Bearer {token}"} if token else None,
        verify=_trust(extra, connection.conn_id),
        timeout=_TIMEOUT,
        follow_redirects=True,
    )
    return Registry([url.rstrip("/") for url in urls], client, connection.conn_id)


class Registry:
    """Decodes values by the schemas of a registry. Blocks: for the thread that polls."""

    def __init__(self, urls: Sequence[str], client: httpx.Client, conn_id: str) -> None:
        self._urls = urls
        self._client = client
        self._conn_id = conn_id
        self._decoders: dict[int, Decode] = {}

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def address(self, number: int) -> str:
        """Where the schema of a number is found."""
        return f"{self._urls[0]}/schemas/ids/{number}"

    def decode(self, value: bytes) -> tuple[Any, int]:
        """The value and the number of its schema; InvalidEvent if it is broken, SourceError if we are."""
        number = schema_number(value)
        if number is None:
            raise InvalidEvent("not in Confluent's wire format: it does not begin with a schema's number")
        decode = self._decoders.get(number)
        if decode is None:
            decode = self._decoders[number] = self._decoder(number)
        try:
            return decode(value[_HEADER.size :]), number
        except InvalidEvent:
            raise
        except Exception as error:  # the readers raise all kinds of errors on broken input
            raise InvalidEvent(f"does not fit schema {number} of its registry: {describe(error)}") from error

    def _decoder(self, number: int) -> Decode:
        schema = self._fetch(f"/schemas/ids/{number}")
        kinds: Mapping[str, Callable[[int, _Schema], Decode]] = {
            "AVRO": self._avro, "JSON": self._json, "PROTOBUF": self._protobuf,
        }  # fmt: skip
        if schema.kind not in kinds:
            raise InvalidEvent(f"schema {number} is of kind {schema.kind!r}: known are {', '.join(kinds)}")
        try:
            return kinds[schema.kind](number, schema)
        except (InvalidEvent, SourceError):
            raise
        except Exception as error:
            raise InvalidEvent(
                f"schema {number} cannot be read: {describe(error)}; correct it in the registry"
            ) from error

    def _avro(self, number: int, schema: _Schema) -> Decode:
        import fastavro

        named: dict[str, Any] = {}
        for reference in self._referenced(schema).values():
            fastavro.parse_schema(parse_json(reference.text.encode()), named_schemas=named)
        parsed = fastavro.parse_schema(parse_json(schema.text.encode()), named_schemas=named)
        return lambda payload: fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)

    def _json(self, number: int, schema: _Schema) -> Decode:
        return parse_json

    def _protobuf(self, number: int, schema: _Schema) -> Decode:
        from google.protobuf import descriptor_pool, message_factory

        # A registry that can sends the compiled schema; others ignore the wish and send its source.
        compiled = self._fetch(f"/schemas/ids/{number}?format=serialized")
        parts = self._referenced(schema, "?format=serialized")
        pool = descriptor_pool.DescriptorPool()
        main = ""
        for file in _descriptors({**parts, f"windsock-{number}.proto": compiled}):
            pool.AddSerializedFile(file.SerializeToString())
            main = file.name
        types = pool.FindFileByName(main).message_types_by_name

        def decode(payload: bytes) -> Any:
            path, rest = _message_path(payload)
            descriptor = list(types.values())[path[0]]
            for index in path[1:]:
                descriptor = descriptor.nested_types[index]
            message = message_factory.GetMessageClass(descriptor)()
            message.ParseFromString(rest)
            return _fields(message)

        return decode

    def _referenced(self, schema: _Schema, query: str = "") -> dict[str, _Schema]:
        """The schemas that a schema refers to, by the names it gives them, each before those that need it."""
        found: dict[str, _Schema] = {}
        for reference in schema.references or ():
            path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}{query}"
            other = self._fetch(path)
            found |= self._referenced(other, query)
            found[reference.name] = other
        return found

    def _fetch(self, path: str) -> _Schema:
        """A schema from the first registry that answers."""
        where, said = self._urls[0], ""
        for url in self._urls:
            try:
                answer = self._client.get(f"{url}{path}")
            except httpx.HTTPError as error:
                where, said = url, f"cannot be reached: {describe(error)}; check that it runs, and"
                continue
            if answer.status_code == 404:
                raise InvalidEvent(f"the schema registry at {url} has no {path}: register the schema there")
            if answer.is_success:
                try:
                    return msgspec.json.decode(answer.content, type=_Schema)
                except msgspec.MsgspecError as error:
                    where, said = url, f"answers with something else than a schema: {error}; check"
                    continue
            refused = answer.status_code in (401, 403)
            what = "refused the login" if refused else "cannot answer now"
            where, said = url, f"{what}: HTTP {answer.status_code}; check login and password, and"
        raise SourceError(f"schema registry at {where} {said} its address in connection {self._conn_id!r}")


def _address(connection: Connection) -> str:
    host = connection.host or ""
    if not host:
        raise SourceError(
            f"schema registry connection {connection.conn_id!r} has no address: set its host, as a URL"
        )
    if "://" not in host:
        return f"{connection.schema or 'http'}://{host}:{connection.port or 8081}"
    parts = urlsplit(host)
    if parts.port is None and connection.port:
        parts = parts._replace(netloc=f"{parts.netloc}:{connection.port}")
    return urlunsplit(parts)


def _trust(extra: Mapping[str, Any], conn_id: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=extra.get("ssl.ca.location") or None)
        if certificate := extra.get("ssl.certificate.location"):
            context.load_cert_chain(
                certificate, extra.get("ssl.key.location") or None, extra.get("ssl.key.password") or None
            )
    except OSError as error:
        raise SourceError(
            f"connection {conn_id!r}: the certificates of the schema registry cannot be read: {error}; "
            "correct ssl.ca.location, ssl.certificate.location and ssl.key.location"
        ) from error
    return context


def _message_path(payload: bytes) -> tuple[list[int], bytes]:
    """Which message of the file it is, as indexes from the outermost in, and the message's bytes."""
    count, at = _varint(payload, 0)
    if count == 0:
        return [0], payload[at:]
    path = []
    for _ in range(count):
        index, at = _varint(payload, at)
        path.append(index)
    return path, payload[at:]


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    """A zigzag number and the place behind it."""
    value = shift = 0
    while True:
        byte = payload[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _descriptors(files: Mapping[str, _Schema]) -> list[Any]:
    """The compiled files, each behind those that it imports; the last is the last one given."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    try:
        ready = [FileDescriptorProto.FromString(base64.b64decode(file.text, validate=True))
                 for file in files.values()]  # fmt: skip
    except (ValueError, binascii.Error):
        return list(FileDescriptorSet.FromString(_compiled({n: f.text for n, f in files.items()})).file)
    for file, name in zip(ready, files, strict=True):
        file.name = file.name or name
    wanted = {name for file in ready for name in file.dependency} - {file.name for file in ready}
    modules = [importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
               for name in sorted(wanted) if _WELL_KNOWN.fullmatch(name)]  # fmt: skip
    well_known = [FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb) for module in modules]
    return [*well_known, *ready]


def _compiled(sources: Mapping[str, str]) -> bytes:
    """The descriptor set of Protobuf sources, by protoc."""
    try:
        protoc = importlib.import_module("grpc_tools.protoc")
    except ImportError as error:
        raise SourceError(
            "Protobuf schemas of this registry come as source, to be compiled: pip install 'windsock[kafka]'"
        ) from error
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch).resolve()
        for name, text in sources.items():
            path = (directory / name).resolve()
            if not path.is_relative_to(directory):
                raise InvalidEvent(f"a schema refers to {name!r}, which is not a relative path")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        result = directory / "set.bin"
        well_known = Path(str(protoc.__file__)).parent / "_proto"
        command = ["protoc", f"-I{directory}", f"-I{well_known}", "--include_imports"]
        if protoc.main([*command, f"--descriptor_set_out={result}", str(directory / list(sources)[-1])]):
            raise InvalidEvent("its Protobuf schema cannot be compiled: correct it in the registry")
        return result.read_bytes()


def _fields(message: Any) -> Any:
    """A message as plain values under its fields' own names; numbers stay numbers, enums become names."""
    from google.protobuf import json_format

    kind = message.DESCRIPTOR
    if kind.full_name.startswith("google.protobuf."):
        return message.value if kind.full_name.endswith("Value") and len(kind.fields) == 1 else (
            json_format.MessageToDict(message)
        )  # fmt: skip
    plain = {}
    for field in kind.fields:
        if not field.has_presence or message.HasField(field.name):
            plain[field.name] = _value(field, getattr(message, field.name))
    return plain


def _value(field: Any, value: Any) -> Any:
    if isinstance(value, MutableMapping):
        inner = field.message_type.fields_by_name["value"]
        return {str(key): _value(inner, value[key]) for key in value}
    if isinstance(value, MutableSequence):
        return [_value(field, item) for item in value]
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    return _fields(value) if field.message_type is not None else value

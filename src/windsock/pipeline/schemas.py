"""Schemas: what data must look like, as JSON Schema or as a pydantic model, compiled to one callable.

``compile_schema`` takes the schema itself, ``package.module:Model``, or a place (a file, a URL, a schema
registry's address). Files are read by :func:`with_schemas` when the Dag is parsed, URLs when the watcher
starts, so that what travels and is stored with the watcher is the schema itself.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from windsock.events import InvalidEvent, WindsockError
from windsock.spec import Schema, SpecError, WatcherSpec
from windsock.values import describe

__all__ = ["Check", "compile_schema", "is_remote", "load_schema", "with_schemas"]

Check = Callable[[Any], Any]
"""Returns the data as the schema wants it; raises :class:`InvalidEvent`, which says where it is wrong."""

_MODEL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_MOST_ERRORS = 3
_TIMEOUT = 10.0
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def is_remote(schema: Schema) -> bool:
    """Whether the schema has to be fetched over the network."""
    return isinstance(schema, str) and schema.startswith(("http://", "https://"))


def with_schemas(spec: WatcherSpec, folder: Path) -> WatcherSpec:
    """The spec with schemas that are files, relative to the folder, read into it."""
    where = f"watcher {spec.name!r}"
    if spec.schema is not None:
        spec = msgspec.structs.replace(spec, schema=_inline(spec.schema, folder, f"{where}: schema"))
    if spec.versions is not None:
        schemas = {
            version: _inline(schema, folder, f"{where}: versions.schemas[{version!r}]")
            for version, schema in spec.versions.schemas.items()
        }
        spec = msgspec.structs.replace(spec, versions=msgspec.structs.replace(spec.versions, schemas=schemas))
    return spec


def load_schema(place: str, folder: Path) -> dict[str, Any]:
    """The JSON Schema behind a file, a URL or ``package.module:Model``; raises SpecError."""
    if is_remote(place):
        return fetch(place)
    if _MODEL.fullmatch(place):
        found: dict[str, Any] = _imported(place, "schema").model_json_schema()
        return found
    return _object(_inline(place, folder, "schema"), "schema")


def _inline(schema: Schema, folder: Path, where: str) -> Schema:
    """The schema with a file's content in place of its name; models and URLs stay as they are."""
    if not isinstance(schema, str) or is_remote(schema) or _MODEL.fullmatch(schema):
        return schema
    path = folder / schema
    try:
        return _object(json.loads(path.read_text("utf-8")), where)
    except (OSError, ValueError) as error:
        raise SpecError(f"{where}: cannot read the schema {path}: {describe(error)}") from error


def compile_schema(schema: Schema, *, coerce: bool, where: str) -> Check:
    """A check for data; raises SpecError if the schema is none."""
    if isinstance(schema, str):
        if _MODEL.fullmatch(schema):
            return _model(schema, coerce, where)
        if not is_remote(schema):
            raise SpecError(
                f"{where}: {schema!r} is a file, which is read when the Dag is parsed: pass the schema itself"
            )
        schema = fetch(schema)
    return _json_schema(schema, coerce, where)


@lru_cache(maxsize=256)
def fetch(url: str) -> dict[str, Any]:
    """The schema behind a URL; a schema registry's answer (``{"schema": "…"}``) is unpacked."""
    import httpx

    try:
        answer = httpx.get(url, timeout=_TIMEOUT, follow_redirects=True).raise_for_status()
        found = answer.json()
        if isinstance(found, dict) and isinstance(found.get("schema"), str):
            found = json.loads(found["schema"])
    except (httpx.HTTPError, ValueError) as error:
        raise WindsockError(f"schema {url} cannot be fetched: {describe(error)}") from error
    return _object(found, f"schema {url}")


def _object(schema: Any, where: str) -> dict[str, Any]:
    if not isinstance(schema, dict):
        raise SpecError(f"{where}: a JSON Schema is an object, not a {type(schema).__name__}")
    return schema


def _json_schema(schema: dict[str, Any], coerce: bool, where: str) -> Check:
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for(schema)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise SpecError(f"{where} is not a JSON Schema: {describe(error)}") from error

    def check(data: Any) -> Any:
        if validator.is_valid(data):
            return data
        if coerce:
            converted = _converted(data, schema)
            if validator.is_valid(converted):
                return converted
            data = converted
        errors = []
        for error in validator.iter_errors(data):
            errors.append(f"data{_place(error.instance_path)}: {error.message}")
            if len(errors) == _MOST_ERRORS:
                break
        raise InvalidEvent("; ".join(errors))

    return check


def _place(path: Any) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _converted(data: Any, schema: Any) -> Any:
    """``data`` with scalars turned into the type that the schema asks for, where that loses nothing."""
    if not isinstance(schema, dict):
        return data
    wanted = schema.get("type")
    if isinstance(data, dict):
        members = schema.get("properties", {})
        rest = schema.get("additionalProperties")
        return {name: _converted(value, members.get(name, rest)) for name, value in data.items()}
    if isinstance(data, list):
        return [_converted(value, schema.get("items")) for value in data]
    if isinstance(data, str):
        return _from_text(data, wanted)
    if wanted == "string" and isinstance(data, int | float) and not isinstance(data, bool):
        return msgspec.json.encode(data).decode()
    return data


def _from_text(text: str, wanted: Any) -> Any:
    stripped = text.strip()
    try:
        if wanted == "integer":
            return int(stripped)
        if wanted == "number":
            return float(stripped)
    except ValueError:
        return text
    if wanted == "boolean" and stripped.lower() in (*_TRUE, *_FALSE):
        return stripped.lower() in _TRUE
    return None if wanted == "null" and not stripped else text


def _model(target: str, coerce: bool, where: str) -> Check:
    import pydantic

    model = _imported(target, where)

    def check(data: Any) -> Any:
        try:
            # JSON has no types for times, UUIDs and the like: they come as text also to a strict model.
            made = model.model_validate_json(msgspec.json.encode(data), strict=not coerce)
            return made.model_dump(mode="json")
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False, include_input=False)[:_MOST_ERRORS]
            raise InvalidEvent("; ".join(f"data{_place(e['loc'])}: {e['msg']}" for e in found)) from None

    return check


def _imported(target: str, where: str) -> Any:
    """The pydantic model of that name."""
    import pydantic

    module, _, name = target.partition(":")
    try:
        model = getattr(importlib.import_module(module), name)
    except Exception as error:  # importing runs the user's code, which may raise anything
        raise SpecError(f"{where}: cannot import {target}: {describe(error)}") from error
    if not isinstance(model, type) or not issubclass(model, pydantic.BaseModel):
        raise SpecError(f"{where}: {target} is not a pydantic model")
    return model

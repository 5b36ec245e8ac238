"""Watcher definitions from where they are written: ``watchers.yaml``, a Python module, or the log.

Reading YAML needs no Airflow. Importing a module needs what the module imports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from windsock.events import WindsockError
from windsock.log import Log
from windsock.pipeline.schemas import with_schemas
from windsock.sources import make_source
from windsock.spec import SpecError, WatcherSpec

__all__ = ["REGISTERED", "Entry", "as_spec", "definitions", "entries", "load_watchers"]

REGISTERED = "registered"
"""The place that means: as the log knows them."""

_BATCH = {
    "batch": "size", "batch_bytes": "bytes", "within": "within", "quiet": "quiet", "leading": "leading",
    "flush": "flush", "target": "target",
}  # fmt: skip


def definitions(place: str, log: Log | None = None) -> dict[str, WatcherSpec]:
    """The watchers that a place declares, by name.

    The place is the path of a ``watchers.yaml``, ``package.module:name`` of a watcher, an asset or a list of
    them, or ``registered``: those that the log knows.
    """
    if place == REGISTERED:
        if log is None:
            raise WindsockError("'registered' needs the event log")
        return {spec.name: spec for spec in log.watchers()}
    module, colon, name = place.partition(":")
    if colon and not Path(place).exists():
        return {spec.name: spec for spec in _imported(module, name)}
    return load_watchers(Path(place))


def load_watchers(path: Path) -> dict[str, WatcherSpec]:
    """The definitions of a ``watchers.yaml``, by name; raises SpecError with the file and the line."""
    found = {}
    for name, entry in entries(path, "watchers"):
        kind = entry.take("kind", str, None)
        if kind is None:
            raise entry.mistake(None, "needs a kind, such as 'files' or 'webhook'")
        try:
            spec = with_schemas(as_spec(name, kind, entry.options), path.parent)
            make_source(kind, spec.options)
            found[name] = spec
        except WindsockError as error:
            raise entry.mistake(None, str(error)) from error
    return found


def as_spec(name: str, kind: str, options: Mapping[str, Any]) -> WatcherSpec:
    """The definition behind a watcher's options as a user writes them, all on one level."""
    own = {option: value for option, value in options.items() if option in _OWN}
    batch = {_BATCH[option]: value for option, value in options.items() if option in _BATCH}
    rest = {option: value for option, value in options.items() if option not in own and option not in _BATCH}
    if own.get("new_dags") is not None:
        own["new_dags"] = str(own["new_dags"])  # YAML reads a time as one
    return WatcherSpec.from_dict({**own, "name": name, "kind": kind, "options": rest, "batch": batch})


_OWN = {*WatcherSpec.__struct_fields__} - {"name", "kind", "options", "batch"}


def _imported(module: str, name: str) -> Iterator[WatcherSpec]:
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise WindsockError(f"{module}:{name} cannot be imported: {error}") from error
    for one in found if isinstance(found, list | tuple) else [found]:
        for watcher in getattr(one, "watchers", [one]):
            spec = watcher if isinstance(watcher, WatcherSpec) else _spec_of(watcher)
            if spec is None:
                raise WindsockError(f"{module}:{name} is no watcher and no asset with watchers")
            yield spec


def _spec_of(watcher: Any) -> WatcherSpec | None:
    spec = getattr(getattr(watcher, "trigger", None), "spec", None)
    return spec if isinstance(spec, WatcherSpec) else None


class Entry:
    """One named block of a file: its plain options and the line of each."""

    def __init__(
        self, path: Path, name: str, line: int, options: dict[str, Any], lines: dict[str, int]
    ) -> None:
        self._path, self._name, self._line = path, name, line
        self.options = options
        self.lines = lines

    def take(self, option: str, kind: type, default: Any) -> Any:
        """The value of an option, checked and removed."""
        value = self.options.pop(option, default)
        if value is not default and not isinstance(value, kind):
            raise self.mistake(option, f"{option} must be a {kind.__name__}, not {value!r}")
        return value

    def nothing_left(self) -> None:
        """Refuse options that nobody took."""
        for option in self.options:
            raise self.mistake(option, f"unknown option {option!r}")

    def mistake(self, option: str | None, message: str) -> SpecError:
        """The error that names the file, the line and the block."""
        line = self.lines.get(option, self._line) if option else self._line
        return SpecError(f"{self._path.name}:{line}: {self._name}: {message}")


def entries(path: Path, section: str) -> Iterator[tuple[str, Entry]]:
    """The named blocks of a file's only section."""
    try:
        root = yaml.compose(path.read_text("utf-8"), Loader=yaml.SafeLoader)
    except FileNotFoundError as error:
        raise SpecError(f"{path} is missing: assets.yaml and watchers.yaml stand side by side") from error
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError(f"{path.name}: {error}") from error
    if root is None:
        return
    for key, block in _pairs(path, root):
        if key.value != section:
            raise SpecError(f"{path.name}:{_line(key)}: expected '{section}:', found {key.value!r}")
        for name, options in _pairs(path, block):
            pairs = list(_pairs(path, options))
            plain = {option.value: _plain(value) for option, value in pairs}
            lines = {option.value: _line(option) for option, _ in pairs}
            yield name.value, Entry(path, name.value, _line(name), plain, lines)


def _pairs(path: Path, node: yaml.Node) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise SpecError(f"{path.name}:{_line(node)}: expected names with values, found {node.value!r}")
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            raise SpecError(f"{path.name}:{_line(key)}: {key.value!r} is given twice")
        seen.add(key.value)
        yield key, value


def _plain(node: yaml.Node) -> Any:
    return yaml.safe_load(yaml.serialize(node, Dumper=yaml.SafeDumper))


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1

"""The SELECTs of the SQL source, in the dialect of their database.

Names are quoted, values are parameters, always. Only ``filter`` and ``query`` are taken as they are: they are
code of the Dag's author.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from windsock.sources._sql_window import Position

__all__ = ["Dialect", "Statement", "Statements"]

Statement = tuple[str, list[Any]]
"""SQL and its parameters."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
# SQLite takes an unknown name in double quotes for a text, and so would never miss a column.
_BACKTICK = frozenset(
    {"mysql", "mariadb", "sqlite", "bigquery", "gcpbigquery", "databricks", "hive", "hiveserver2", "spark"}
)
_EXACT = frozenset({"postgresql", "postgres", "mssql", *_BACKTICK})
"""Dialects in which a quoted name means what the unquoted one does, if it is written as it was created. The
others fold unquoted names to capitals: there, plain names stay as they are."""


@dataclass(frozen=True)
class Dialect:
    """How one database writes what the standard leaves open."""

    name: str = "default"
    placeholder: str = "%s"

    def quote(self, name: str) -> str:
        """A name of a column, safe whatever it holds."""
        if self.name not in _EXACT and _PLAIN.fullmatch(name):
            return name
        if self.name in _BACKTICK:
            return "`" + name.replace("`", "``") + "`"
        if self.name == "mssql":
            return "[" + name.replace("]", "]]") + "]"
        return '"' + name.replace('"', '""') + '"'

    def table(self, name: str) -> str:
        """A table's name, with its schema and database if it has them."""
        return ".".join(self.quote(part) for part in name.split("."))

    def beside_parameters(self, code: str) -> str:
        """The author's SQL, with the signs escaped that drivers look for when there are parameters."""
        return code.replace("%", "%%") if self.placeholder.startswith("%") else code

    def limited(self, select: str, limit: int) -> str:
        """A SELECT that returns at most so many rows."""
        if self.name == "mssql":
            return select.replace("SELECT ", f"SELECT TOP {limit:d} ", 1)
        if self.name == "oracle":
            return f"{select} FETCH FIRST {limit:d} ROWS ONLY"
        return f"{select} LIMIT {limit:d}"

    def placeholders(self) -> Iterator[str]:
        """The marks of successive parameters; some databases number them."""
        number = 0
        while True:
            number += 1
            yield f":{number}" if self.placeholder.startswith(":") else self.placeholder


class Statements:
    """What is asked about one table."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        table: str,
        order: Sequence[str] = (),
        columns: Sequence[str] = (),
        where: str | None = None,
    ) -> None:
        """``order``: the cursor column, then the primary key; ``columns``: none for all."""
        self._dialect = dialect
        self._table = dialect.table(table)
        self._order = [dialect.quote(name) for name in order]
        self._columns = [dialect.quote(name) for name in columns]
        self._where = where

    def beyond(self, last: Position | None, limit: int) -> Statement:
        """The rows after a position, in order."""
        values = _Values(self._dialect)
        conditions = [self._there(), self._after(values, last)]
        select = self._select(self._all(), conditions, values, order=", ".join(self._order))
        return self._dialect.limited(select, limit), values.given

    def between(self, after: Position | None, last: Position, limit: int) -> Statement:
        """The positions after one and up to another, in order."""
        values = _Values(self._dialect)
        conditions = [self._there(), self._after(values, after), self._compare(values, last, "<", "<=")]
        select = self._select(", ".join(self._order), conditions, values, order=", ".join(self._order))
        return self._dialect.limited(select, limit), values.given

    def at(self, position: Position) -> Statement:
        """The row at a position."""
        values = _Values(self._dialect)
        conditions = [f"{c} = {values.add(v)}" for c, v in zip(self._order, position, strict=True)]
        return self._select(self._all(), conditions, values), values.given

    def newest(self) -> Statement:
        """The last position there is."""
        order = ", ".join(f"{column} DESC" for column in self._order)
        select = self._select(", ".join(self._order), [self._there()], order=order)
        return self._dialect.limited(select, 1), []

    def waiting(self, last: Position | None) -> Statement:
        """How many rows there are after a position."""
        values = _Values(self._dialect)
        return self._select("COUNT(*)", [self._there(), self._after(values, last)], values), values.given

    def count(self) -> Statement:
        """How many rows there are."""
        return self._select("COUNT(*)"), []

    def first(self) -> Statement:
        """One row, if there is any."""
        return self._dialect.limited(self._select(self._all()), 1), []

    def probe(self) -> Statement:
        """No row, but an error if the table or a column is missing."""
        return self._select(", ".join(dict.fromkeys([*self._columns, *self._order])) or "*", ["1 = 0"]), []

    def _all(self) -> str:
        return ", ".join(dict.fromkeys([*self._columns, *self._order])) if self._columns else "*"

    def _select(
        self, what: str, conditions: Sequence[str | None] = (), values: _Values | None = None, order: str = ""
    ) -> str:
        parts = [condition for condition in conditions if condition]
        if self._where:
            escaped = self._dialect.beside_parameters(self._where)
            parts.append(f"({escaped if values and values.given else self._where})")
        where = f" WHERE {' AND '.join(parts)}" if parts else ""
        ordered = f" ORDER BY {order}" if order else ""
        return f"SELECT {what} FROM {self._table}{where}{ordered}"  # noqa: S608 - names are quoted

    def _there(self) -> str:
        return f"{self._order[0]} IS NOT NULL"

    def _after(self, values: _Values, position: Position | None) -> str | None:
        return None if position is None else self._compare(values, position, ">", ">")

    def _compare(self, values: _Values, position: Position, inner: str, outer: str) -> str:
        """Compare all columns at once, in words that every database knows.

        The first comparison is implied by the rest; it lets the database use an index on the cursor column.
        """
        text = f"{self._order[0]} {inner}= {values.add(position[0])} AND "
        for column, value in zip(self._order[:-1], position[:-1], strict=True):
            text += f"({column} {inner} {values.add(value)} OR ({column} = {values.add(value)} AND "
        return f"{text}{self._order[-1]} {outer} {values.add(position[-1])}{'))' * (len(position) - 1)}"


class _Values:
    """The parameters of one statement, in the order of their marks."""

    def __init__(self, dialect: Dialect) -> None:
        self._marks = dialect.placeholders()
        self.given: list[Any] = []

    def add(self, value: Any) -> str:
        self.given.append(value)
        return next(self._marks)

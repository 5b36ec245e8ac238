"""The SQL source without a server: options, statements, the window behind the watermark."""

from __future__ import annotations

import datetime as dt
import decimal
import sqlite3
import uuid
from contextlib import closing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windsock.connections import Connection, fixed
from windsock.events import SourceError, WindsockError
from windsock.sources import make_source
from windsock.sources._sql_database import Database
from windsock.sources._sql_statements import Dialect, Statements
from windsock.sources._sql_states import is_true
from windsock.sources._sql_window import Position, Window, plain, revive

ROWS = {"conn_id": "db", "table": "t", "cursor_column": "c"}
POSTGRESQL = (
    'SELECT * FROM "s"."T" WHERE "c" IS NOT NULL AND "c" >= %s AND ("c" > %s OR ("c" = %s AND "k" > %s)) '
    'AND (x LIKE \'5%%\') ORDER BY "c", "k" LIMIT 10'
)
SQLITE = (
    "SELECT * FROM `s`.`T` WHERE `c` IS NOT NULL AND `c` >= ? AND (`c` > ? OR (`c` = ? AND `k` > ?)) "
    "AND (x LIKE '5%') ORDER BY `c`, `k` LIMIT 10"
)
MSSQL = (
    "SELECT TOP 10 * FROM [s].[T] WHERE [c] IS NOT NULL AND [c] >= %s AND ([c] > %s OR ([c] = %s AND "
    "[k] > %s)) AND (x LIKE '5%%') ORDER BY [c], [k]"
)
ORACLE = (
    "SELECT * FROM s.T WHERE c IS NOT NULL AND c >= :1 AND (c > :2 OR (c = :3 AND k > :4)) "
    "AND (x LIKE '5%') ORDER BY c, k FETCH FIRST 10 ROWS ONLY"
)


class TestOptions:
    """What can be wrong with the options."""

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"conn_id": "db"}, "name the table"),
            ({"conn_id": "db", "table": "t"}, "needs 'cursor_column'"),
            ({**ROWS, "query": "SELECT 1"}, "name the table"),
            ({"conn_id": "db", "query": "SELECT 1"}, "for mode 'condition'"),
            ({"conn_id": "db", "table": "t", "mode": "condition"}, "needs 'filter'"),
            ({**ROWS, "table": "a.b.c.d"}, "more parts"),
            ({**ROWS, "table": "a."}, "no name"),
            ({**ROWS, "primary_key": ["a\0b"]}, "no name"),
            ({**ROWS, "page": 0}, "page"),
            ({**ROWS, "colums": ["a"]}, "colums"),
        ],
    )
    def test_refuses(self, options: dict[str, Any], reason: str) -> None:
        """A wrong combination is refused when the watcher is made, and says what is wrong."""
        with pytest.raises(WindsockError, match=reason):
            make_source("sql", options)


class TestStatements:
    """The SQL that is sent."""

    @pytest.mark.parametrize(
        ("dialect", "expected"),
        [
            (Dialect("postgresql"), POSTGRESQL),
            (Dialect("sqlite", "?"), SQLITE),
            (Dialect("mssql"), MSSQL),
            (Dialect("oracle", ":1"), ORACLE),
        ],
    )
    def test_dialects(self, dialect: Dialect, expected: str) -> None:
        """Each database gets its own quotes, marks and limit, and the values apart from the text."""
        statements = Statements(dialect, table="s.T", order=("c", "k"), where="x LIKE '5%'")
        assert statements.beyond((1, "a"), 10) == (expected, [1, 1, 1, "a"])

    @pytest.mark.parametrize(
        ("name", "quoted"),
        [("mysql", "`a``b`"), ("mssql", "[a`b]"), ("postgresql", '"a`b"'), ("snowflake", '"a`b"')],
    )
    def test_odd_names(self, name: str, quoted: str) -> None:
        """A name cannot end its own quotes."""
        assert Dialect(name).quote("a`b") == quoted

    @given(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), unique=True, max_size=30
        ),
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
    )
    def test_positions_compare_as_tuples(self, rows: list[Position], after: Position, last: Position) -> None:
        """What a database finds after one position and up to another is what Python finds."""
        statements = Statements(Dialect("sqlite", "?"), table="t", order=("a", "b", "c"))
        with closing(sqlite3.connect(":memory:")) as client:
            client.execute("CREATE TABLE t (a, b, c)")
            client.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
            found = client.execute(*statements.between(after, last, 100)).fetchall()
            ((waiting,),) = client.execute(*statements.waiting(after)).fetchall()
        assert found == sorted(row for row in rows if after < row <= last)
        assert waiting == sum(row > after for row in rows)


class Clock:
    """Time that moves when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class TestWindow:
    """What is remembered of announced rows."""

    def test_a_late_row_is_found_once(self) -> None:
        """A row behind the watermark is news the first time and known from then on."""
        window = Window(lookback=60)
        window.passed([(1, "a"), (3, "a")])
        assert window.look()
        assert window.late([(1, "a"), (2, "a"), (3, "a")]) == [(2, "a")]
        assert window.late([(1, "a"), (2, "a"), (3, "a")]) == []

    def test_the_floor_follows(self) -> None:
        """A position is given up when the lookback has passed since, and two looks lie between."""
        clock = Clock()
        window = Window(lookback=60, clock=clock)
        window.passed([(1,)])
        assert window.look()
        clock.now = 30
        window.passed([(2,)])
        assert window.look()
        clock.now = 75
        assert window.look()
        assert window.floor is None
        clock.now = 80
        assert window.look()
        assert window.floor == (1,)
        clock.now = 100
        assert window.look()
        clock.now = 101
        assert not window.look()
        assert window.floor == window.last == (2,)
        assert "sums" not in window.cursor()

    def test_memory_is_bounded(self) -> None:
        """After many rows the oldest are given up, however young."""
        window = Window(lookback=60, max_rows=10)
        for number in range(10):
            window.passed([(number * 3 + part,) for part in range(3)])
        assert window.floor == (20,)
        assert window.late([(20 + number,) for number in range(1, 10)]) == []

    def test_without_lookback_nothing_is_remembered(self) -> None:
        """With a lookback of 0 the watermark is all."""
        window = Window(lookback=0)
        window.passed([(1,), (2,)])
        assert not window.look()
        assert window.cursor() == {"last": [2]}

    def test_no_progress(self) -> None:
        """A value that comes back shortened by its driver is an error, not an endless loop."""
        window = Window(lookback=60)
        window.passed([(1,)])
        with pytest.raises(SourceError, match="does not get past"):
            window.passed([(1,)])

    @given(
        st.lists(st.integers(0, 1000), unique=True, min_size=1, max_size=60),
        st.lists(st.integers(0, 1000), unique=True, max_size=5),
    )
    def test_nothing_is_lost_over_a_restart(self, rows: list[int], late: list[int]) -> None:
        """Whatever appears in the window while nobody watches is announced; unchanged rows are not again."""
        window = Window(lookback=60)
        window.passed([(row,) for row in sorted(rows)])
        again = Window(msgspec.json.decode(msgspec.json.encode(window.cursor())), lookback=60)
        there = sorted({*rows, *(row for row in late if row < max(rows))})
        assert again.unsure
        again.recall([(row,) for row in there])
        assert again.look()
        found = {row for (row,) in again.late([(row,) for row in there])}
        assert found >= set(there) - set(rows)
        if there == sorted(rows):
            assert not found

    @pytest.mark.parametrize(
        "value",
        [
            1,
            1.5,
            "text",
            dt.datetime.fromisoformat("2026-03-01T06:00:00.123456"),
            dt.datetime(2026, 3, 1, 6, tzinfo=dt.UTC),
            dt.date(2026, 3, 1),
            dt.time(6, 30),
            decimal.Decimal("1.10"),
            uuid.UUID(int=7),
            b"\0\xff",
        ],
    )
    def test_values_survive_the_cursor(self, value: Any) -> None:
        """A position is the same parameter after a restart."""
        again = revive(msgspec.json.decode(msgspec.json.encode(plain(value))))
        assert (again, type(again)) == (value, type(value))

    def test_a_value_that_is_no_position(self) -> None:
        """A column of another kind is refused with the remedy."""
        with pytest.raises(SourceError, match="choose columns of"):
            plain([1])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *(
            (value, False)
            for value in (None, 0, False, "", " No ", "f", "FALSE", "0", b"\0", decimal.Decimal(0))
        ),
        *((value, True) for value in (1, True, "y", "ready", "1", b"\1", decimal.Decimal("0.1"))),
    ],
)
def test_flags(value: Any, expected: bool) -> None:
    """A flag column is understood in the ways in which people write yes and no."""
    assert is_true(value) is expected


class TestDatabase:
    """Opening a database."""

    def test_a_type_that_needs_airflow(self) -> None:
        """A conn_type without a client of ours says where it works."""
        database = Database(Connection(conn_id="db", conn_type="snowflake"), timeout=1)
        with pytest.raises(SourceError, match="only Airflow's hook"):
            database.open()

    def test_a_hook_that_is_not_sql(self) -> None:
        """A Connection whose hook is no SQL hook is refused."""
        database = Database(Connection(conn_id="db", conn_type="http", hook=object), timeout=1)
        with pytest.raises(SourceError, match="is no SQL database"):
            database.open()

    def test_asking_after_closing(self) -> None:
        """A closed database says so."""
        with pytest.raises(SourceError, match="connect first"):
            Database(Connection(conn_id="db"), timeout=1).ask(("SELECT 1", []))

    async def test_the_password_is_not_shown(self) -> None:
        """A driver that repeats the password in its error does not get it through."""

        def refuse() -> Any:
            raise RuntimeError("cannot log in with s3cret")

        known = Connection(conn_id="db", conn_type="odd", password="s3cret", hook=refuse)
        source = make_source("sql", {**ROWS, "primary_key": ["k"]}, fixed(known))
        with pytest.raises(SourceError, match=r"cannot log in with \*\*\*") as refused:
            await source.connect(None)
        assert "s3cret" not in str(refused.value)

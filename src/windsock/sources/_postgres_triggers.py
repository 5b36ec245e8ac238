"""The row trigger that lets ``postgres_notify`` miss nothing: `windsock postgres install-trigger`.

``NOTIFY`` alone reaches only who listens at that moment. So the trigger writes each change into an outbox
table, in the transaction that makes it, and ``NOTIFY`` is only the bell::

    install(connection, "public.orders")      # table windsock_outbox, function, two triggers: idempotent
    remove(connection, "public.orders")       # the triggers; the outbox stays until it is dropped

The statements are in ``_postgres_triggers.sql``. Needs PostgreSQL 14 and the rights to create a table and a
function in the outbox's schema and triggers on the table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

from windsock.connections import Connection
from windsock.events import SourceError
from windsock.sources import _postgres

__all__ = ["CHANNEL", "OPERATIONS", "OUTBOX", "install", "remove"]

OUTBOX = CHANNEL = "windsock_outbox"
OPERATIONS = ("insert", "update", "delete", "truncate")
_FIND = """
SELECT n.nspname, c.relname, ARRAY(
           SELECT a.attname::text
             FROM pg_index i
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
            WHERE i.indrelid = c.oid AND i.indisprimary
            ORDER BY array_position(i.indkey::int2[], a.attnum))
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = to_regclass(%s) AND c.relkind IN ('r', 'p')
"""


def install(
    connection: Connection,
    table: str,
    *,
    outbox: str = OUTBOX,
    channel: str = CHANNEL,
    operations: Sequence[str] = OPERATIONS,
    dry_run: bool = False,
) -> str:
    """Make the outbox, the function and the triggers for a table; the SQL that was (or would be) run.

    ``table`` and ``outbox`` may have a schema; ``channel`` is the one that the reader listens on. Run again
    to change the operations. Blocks. Raises SourceError.
    """
    unknown = sorted(set(operations) - set(OPERATIONS))
    if unknown or not operations:
        raise SourceError(f"operations {unknown} are unknown: choose from {', '.join(OPERATIONS)}")
    return _run(connection, table, outbox, channel, operations, dry_run=dry_run)


def remove(connection: Connection, table: str, *, dry_run: bool = False) -> str:
    """Drop the triggers of a table; what is in the outbox stays. Blocks. Raises SourceError."""
    return _run(connection, table, OUTBOX, CHANNEL, (), dry_run=dry_run)


def _run(
    connection: Connection, table: str, outbox: str, channel: str, operations: Sequence[str], *, dry_run: bool
) -> str:
    psycopg = _postgres.psycopg()
    from psycopg import sql

    try:
        with psycopg.connect(**_postgres.parameters(connection)) as client:
            schema, name, keys = _find(client, table)
            home, box = _place(client, outbox)
            rows = [operation.upper() for operation in operations if operation != "truncate"]
            arguments = [f"{schema}.{name}", channel, *keys]
            tokens = {
                "table": sql.Identifier(schema, name),
                "outbox": sql.Identifier(home, box),
                "capture": sql.Identifier(home, f"{box}_capture"),
                "operations": sql.SQL(" OR ").join(map(sql.SQL, rows)),
                "arguments": sql.SQL(", ").join(map(sql.Literal, arguments)),
            }
            wanted = ["remove"]
            if operations:
                wanted += ["outbox", "capture"]
                wanted += ["rows"] if rows else []
                wanted += ["truncate"] if "truncate" in operations else []
            statements = _statements()
            script = "\n\n".join(
                sql.SQL(statements[part]).format(**tokens).as_string(client) for part in wanted
            )
            if not dry_run:
                client.execute(script)
            return script
    except psycopg.Error as error:
        raise _postgres.failure(error, connection, f"cannot change the triggers of {table}") from error


def _find(client: Any, table: str) -> tuple[str, str, list[str]]:
    """Schema, name and primary key of a table."""
    from psycopg import sql

    quoted = sql.Identifier(*table.split(".")).as_string(client)
    found = client.execute(_FIND, [quoted]).fetchone()
    if found is None:
        raise SourceError(f"table {table} does not exist: check its name, with its schema and its capitals")
    schema, name, keys = found
    return schema, name, keys


def _place(client: Any, name: str) -> tuple[str, str]:
    """Schema and name of what may not be there yet."""
    schema, _, plain = name.rpartition(".")
    return schema or client.execute("SELECT current_schema()").fetchone()[0], plain


def _statements() -> dict[str, str]:
    """The file's statements by name."""
    text = resources.files(__package__).joinpath("_postgres_triggers.sql").read_text("utf-8")
    blocks = (block.partition("\n") for block in re.split(r"^-- name: ", text, flags=re.MULTILINE)[1:])
    return {name.strip(): sql.strip() for name, _, sql in blocks}

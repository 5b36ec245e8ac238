"""Airflow's Connections, as the sources ask for them."""

from __future__ import annotations

from functools import partial
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError

from windsock.connections import Connection
from windsock.events import SourceError

__all__ = ["airflow_connection"]


async def airflow_connection(conn_id: str) -> Connection:
    """The Airflow Connection of that id; raises SourceError if there is none."""
    try:
        found = await BaseHook.aget_connection(conn_id)
    except (AirflowNotFoundException, AirflowRuntimeError) as error:
        raise SourceError(
            f"connection {conn_id!r} is not defined in Airflow: add it under Admin > Connections, in a "
            f"secrets backend, or as AIRFLOW_CONN_{conn_id.upper()}"
        ) from error
    extra: dict[str, Any] = found.extra_dejson
    return Connection(
        conn_id=conn_id,
        conn_type=found.conn_type or "",
        host=found.host,
        port=found.port,
        login=found.login,
        password=found.password,
        schema=found.schema,
        extra=extra,
        hook=partial(_hook, found),
    )


def _hook(found: Any) -> Any:
    """Airflow's hook for a Connection that is at hand.

    Hooks look their Connection up by its id when they connect, which asks the triggerer's supervisor again,
    once per use and through the event loop. This one is given what was found.
    """
    hook = found.get_hook()
    look_up = hook.get_connection
    hook.get_connection = lambda conn_id: found if conn_id == found.conn_id else look_up(conn_id)
    return hook

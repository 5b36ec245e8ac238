"""Connection types: where the event log is, and the secret of a webhook."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook

from windsock.log import Log, LogUnavailable, open_log

__all__ = ["WebhookSecretHook", "WindsockLogHook"]


class WindsockLogHook(BaseHook):
    """The event log of a Connection: host, port, login, password and schema (the database) of PostgreSQL."""

    conn_name_attr = "windsock_conn_id"
    default_conn_name = "windsock_default"
    conn_type = "windsock"
    hook_name = "Windsock event log"

    def __init__(self, windsock_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.windsock_conn_id = windsock_conn_id

    def get_conn(self) -> Log:
        """The opened log."""
        connection = self.get_connection(self.windsock_conn_id)
        return open_log(log_url_of(connection))

    def test_connection(self) -> tuple[bool, str]:
        """Whether the log can be opened and read."""
        try:
            log = self.get_conn()
            watchers = len(log.watchers())
            log.close()
        except LogUnavailable as error:
            return False, str(error)
        return True, f"The event log answers; it knows {watchers} watchers."


class WebhookSecretHook(BaseHook):
    """The secret that a webhook's sender shares with us: password, and login for basic authentication."""

    conn_name_attr = "conn_id"
    default_conn_name = "windsock_webhook_default"
    conn_type = "windsock_webhook"
    hook_name = "Windsock webhook secret"

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Only the fields that mean something here."""
        return {
            "hidden_fields": ["host", "port", "schema", "extra"],
            "relabeling": {"password": "Secret", "login": "Login (basic authentication only)"},
        }


def log_url_of(connection: Any) -> str:
    """The log's URL from a Connection of type ``windsock``, ``postgres`` or ``sqlite``."""
    if connection.conn_type == "sqlite":
        return f"sqlite:///{connection.host}"
    from urllib.parse import quote

    login = quote(connection.login or "", safe="")
    password = f":{quote(connection.password, safe='')}" if connection.password else ""
    port = f":{connection.port}" if connection.port else ""
    user = f"{login}{password}@" if login else ""
    return f"postgresql://{user}{connection.host or 'localhost'}{port}/{connection.schema or ''}"

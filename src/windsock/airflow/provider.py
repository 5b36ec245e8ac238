"""What Airflow's provider discovery reads."""

from __future__ import annotations

from typing import Any

__all__ = ["get_provider_info"]

_INTEGRATION = "Windsock"


def _option(
    description: str, *, default: str, example: str | None = None, sensitive: bool = False
) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": "string",
        "default": default,
        "example": example,
        "sensitive": sensitive,
    }


def _modules(*names: str) -> list[dict[str, Any]]:
    return [{"integration-name": _INTEGRATION, "python-modules": list(names)}]


def get_provider_info() -> dict[str, Any]:
    """Windsock by Airflow's conventions; ``airflow providers list`` shows it."""
    return {
        "package-name": "windsock",
        "name": _INTEGRATION,
        "description": "Event-driven scheduling: a durable event log between the world and your Dags.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://pypi.org/project/windsock/",
                "tags": ["software"],
            }
        ],
        "operators": _modules(
            "windsock.airflow.claim", "windsock.airflow.http_polling", "windsock.airflow.route"
        ),
        "sensors": _modules("windsock.airflow.file_pattern"),
        "triggers": _modules(
            "windsock.airflow.trigger", "windsock.airflow.http_polling", "windsock.airflow.file_pattern"
        ),
        "hooks": _modules("windsock.airflow.hooks"),
        "connection-types": [
            {
                "connection-type": "windsock",
                "hook-class-name": "windsock.airflow.hooks.WindsockLogHook",
                "hook-name": "Windsock event log",
            },
            {
                "connection-type": "windsock_webhook",
                "hook-class-name": "windsock.airflow.hooks.WebhookSecretHook",
                "hook-name": "Windsock webhook secret",
            },
        ],
        "config": {
            "windsock": {
                "description": "Windsock's durable event log and its announcements.",
                "options": {
                    "log_url": _option(
                        "Where the event log is: ``sqlite:////absolute/path.db`` or ``postgresql://…``."
                        " Empty: the Connection of ``log_conn_id``, else ``windsock.db`` in AIRFLOW_HOME.",
                        default="",
                        example="postgresql://windsock@db.example.com/airflow",
                        sensitive=True,
                    ),
                    "log_conn_id": _option(
                        "The Airflow Connection that says where the event log is.",
                        default="",
                        example="windsock_default",
                    ),
                    "inline_events": _option(
                        "An announcement carries its events itself when they are at most so many.",
                        default="20",
                    ),
                    "inline_bytes": _option(
                        "An announcement carries its events itself when they are at most so many bytes.",
                        default="16384",
                    ),
                    "high_water_total": _option(
                        "Unsettled events of all watchers together at which sources are paused, those of the"
                        " lowest priority first. 0: no limit but each watcher's own.",
                        default="0",
                        example="1000000",
                    ),
                    "low_water_total": _option(
                        "Unsettled events of all watchers at which paused sources go on."
                        " 0: half of ``high_water_total``.",
                        default="0",
                        example="500000",
                    ),
                    "retention": _option(
                        "How long settled events are kept, such as ``30d``.", default="30d", example="90d"
                    ),
                    "dead_letter_alert": _option(
                        "Dead letters in a time that are worth an alert: a warning in the triggerer's log and"
                        " a call of ``alert_callback``, once in that time. Empty: no alert.",
                        default="",
                        example="100/1h",
                    ),
                    "alert_callback": _option(
                        "``package.module:function`` that is called with every alert as a dictionary.",
                        default="",
                        example="our_alerts:page_someone",
                    ),
                },
            }
        },
    }

"""Windsock by Airflow's own conventions."""

from __future__ import annotations

import importlib
import json
from importlib import metadata, resources

import jsonschema

from windsock.airflow.provider import get_provider_info


def test_provider_info_is_what_airflow_accepts() -> None:
    """The provider's description passes Airflow's own schema."""
    schema = json.loads(resources.files("airflow").joinpath("provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_every_name_in_it_can_be_imported() -> None:
    """Modules and classes that the description names exist."""
    info = get_provider_info()
    for section in ("operators", "triggers", "hooks", "sensors"):
        for row in info.get(section, []):
            for module in row["python-modules"]:
                importlib.import_module(module)
    for row in info["connection-types"]:
        module, _, name = row["hook-class-name"].rpartition(".")
        assert getattr(importlib.import_module(module), name).conn_type == row["connection-type"]


def test_entry_points_are_installed() -> None:
    """Airflow finds the provider and the plugin by entry points."""
    assert {
        e.value for e in metadata.entry_points(group="apache_airflow_provider") if e.dist.name == "windsock"
    } == {"windsock.airflow.provider:get_provider_info"}
    (plugin,) = metadata.entry_points(group="airflow.plugins", name="windsock")
    assert plugin.load().name == "windsock"


def test_options_are_described() -> None:
    """Every configuration option says what it is and since when."""
    options = get_provider_info()["config"]["windsock"]["options"]
    assert {"log_url", "log_conn_id", "retention"} <= options.keys()
    assert all(option["description"] and option["version_added"] for option in options.values())
    assert options["log_url"]["sensitive"], "a database URL may hold a password"

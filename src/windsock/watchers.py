"""The watchers to attach to an asset: ``from windsock.watchers import FilesAssetWatcher``."""

from __future__ import annotations

from windsock.airflow import watchers as _watchers
from windsock.airflow.watchers import *  # noqa: F403 - the names are listed there

__all__ = _watchers.__all__

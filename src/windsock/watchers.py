"""The watchers to attach to an asset: ``from windsock.watchers import FilesAssetWatcher``."""

from __future__ import annotations

from windsock.airflow.watchers import EventWatcher, FilesAssetWatcher, WebhookAssetWatcher

__all__ = ["EventWatcher", "FilesAssetWatcher", "WebhookAssetWatcher"]

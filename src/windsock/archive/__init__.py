"""The archive: Parquet files of events that have left the log, on a disk or in object storage.

::

    log.purge(before=…, archive=ParquetArchive())          # what the keeper does every hour
    for stored in archived(log, ParquetArchive(), Scan(watchers=["orders"], key="1017")): ...

A file has the columns seq, id, source, type, subject, key, time, received_at, body and dags, compressed with
zstd, under ``watcher=<name>/day=<day>/``: DuckDB, Spark and pandas read the directory as it is.
"""

from __future__ import annotations

from windsock.archive.files import Files
from windsock.archive.parquet import pack, unpack
from windsock.archive.reading import archived, archived_files

__all__ = ["Files", "ParquetArchive", "archived", "archived_files"]


class ParquetArchive(Files):
    """Implements :class:`windsock.log.archive.Archive`; ``connections`` finds what a URL names."""

    pack = staticmethod(pack)
    unpack = staticmethod(unpack)

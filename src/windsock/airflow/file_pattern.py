"""Wait for files that match a glob, without holding a worker.

    FilePatternSensor(task_id="wait_for_parts", pattern="/data/{{ ds }}/**/*.csv", min_files=3, settle=5)

The task looks at once. If there are too few files, it defers to :class:`FilePatternTrigger` and ends with the
sorted list of paths as its result. To start a Dag for each new file, watch the directory instead:
:class:`windsock.watchers.FilesAssetWatcher`.
"""

from __future__ import annotations

import asyncio
import glob
import logging
import os
import stat
import time
from collections.abc import Callable
from typing import Any, ClassVar

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowException, AirflowSensorTimeout

from windsock.airflow.polling import PollingTrigger, positive_seconds
from windsock.spec import SpecError, seconds
from windsock.values import clean_text

__all__ = ["FilePatternSensor", "FilePatternTrigger", "find_files"]

logger = logging.getLogger(__name__)


def find_files(pattern: str, settle: float = 0.0, clock: Callable[[], float] = time.time) -> list[str]:
    """The files that match, sorted; those that changed in the last ``settle`` seconds are left out.

    Directories do not count, nor do names with a leading dot, unless the pattern has it too. What cannot be
    read is not there. In a name that is not UTF-8 the stray bytes are shown as escapes.
    """
    now = clock()
    return sorted(
        clean_text(path) for path in glob.iglob(pattern, recursive=True) if _complete(path, now, settle)
    )


def _complete(path: str, now: float, settle: float) -> bool:
    try:
        status = os.stat(path)
    except OSError:  # gone since it was listed
        return False
    # ctime moves with every write and rename, also when a copy sets mtime back to that of its original.
    return stat.S_ISREG(status.st_mode) and (settle == 0 or now - status.st_ctime >= settle)


class FilePatternTrigger(PollingTrigger):
    """Looks for files until there are enough; fires one event.

    The event's ``status`` is ``success`` (with the sorted ``files``) or ``timeout`` (with a ``message``).
    The search runs in a thread, so that a slow disk holds up no other trigger.

    :param pattern: absolute glob, such as ``/data/*.csv``; ``**`` stands for any number of directories
    :param min_files: how many files there must be
    :param poll_interval: seconds between two looks, or text such as ``"10s"``
    :param timeout: seconds until the trigger gives up; None waits for ever
    :param settle: a file counts once it has not changed for so many seconds; for files that are written in
        place, rather than under another name and renamed when complete
    :param deadline: see :class:`~windsock.airflow.polling.PollingTrigger`, as for ``clock`` and ``sleep``
    """

    def __init__(
        self,
        pattern: str,
        min_files: int = 1,
        poll_interval: float | str = 10.0,
        timeout: float | str | None = None,
        settle: float | str = 0.0,
        deadline: float | None = None,
        **testing: Any,
    ) -> None:
        super().__init__(poll_interval=poll_interval, timeout=timeout, deadline=deadline, **testing)
        if not os.path.isabs(pattern):
            raise SpecError(
                f"pattern {pattern!r} must be absolute: worker and triggerer do not share a working directory"
            )
        self.pattern = pattern
        self.min_files = _at_least_one(min_files)
        self.settle = seconds(settle)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """All that is needed to go on elsewhere, the deadline included."""
        return "windsock.airflow.file_pattern.FilePatternTrigger", {
            "pattern": self.pattern,
            "min_files": self.min_files,
            "poll_interval": self.poll_interval,
            "timeout": self.timeout,
            "settle": self.settle,
            "deadline": self.deadline,
        }

    async def wait(self) -> dict[str, Any]:
        """Look until there are enough files or the deadline has passed."""
        logger.info("windsock.file_pattern.waiting pattern=%s left=%.1fs", self.pattern, self.left)
        while True:
            files = await asyncio.to_thread(find_files, self.pattern, self.settle, self.clock)
            if len(files) >= self.min_files:
                logger.info("windsock.file_pattern.ready pattern=%s files=%d", self.pattern, len(files))
                return {"status": "success", "files": files, "elapsed": self.elapsed}
            if not await self.pause(self.poll_interval):
                message = (
                    f"only {len(files)} of {self.min_files} files matched {self.pattern} within"
                    f" {self.timeout:g} s; does the triggerer see the directory that is written to?"
                )
                return {"status": "timeout", "message": message, "files": files, "elapsed": self.elapsed}


class FilePatternSensor(BaseSensorOperator):
    """Wait for files; the task's result is the sorted list of their paths. Options as for the trigger.

    It looks at once, and defers when there are too few. ``timeout`` is the sensor's own: by default Airflow's
    ``[sensors] default_timeout``.
    """

    template_fields: ClassVar[tuple[str, ...]] = ("pattern",)
    ui_color = "#dbeef7"

    def __init__(
        self,
        *,
        pattern: str,
        min_files: int = 1,
        poll_interval: float | str = 10.0,
        timeout: float | str | None = None,
        settle: float | str = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            poke_interval=positive_seconds("poll_interval", poll_interval),
            timeout=None if timeout is None else positive_seconds("timeout", timeout),
            **kwargs,
        )
        self.pattern = pattern
        self.min_files = _at_least_one(min_files)
        self.settle = seconds(settle)

    def poke(self, context: Any) -> PokeReturnValue:
        """Whether there are enough files now, and which."""
        files = find_files(self.pattern, self.settle)
        return PokeReturnValue(is_done=len(files) >= self.min_files, xcom_value=files)

    def execute(self, context: Any) -> list[str]:
        """Look at once; defer if there are too few. The deadline is counted from here."""
        trigger = FilePatternTrigger(
            pattern=self.pattern,
            min_files=self.min_files,
            poll_interval=self.poke_interval,
            timeout=self.timeout,
            settle=self.settle,
        )
        look = self.poke(context)
        if not look:
            self.defer(
                trigger=trigger, method_name=self.execute_complete.__name__, timeout=trigger.deferral_timeout
            )
        return list(look.xcom_value)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> list[str]:
        """The paths; raises ``AirflowSensorTimeout``, which ``soft_fail`` turns into a skipped task."""
        match event:
            case {"status": "success", "files": files}:
                return list(files)
            case {"status": "timeout", "message": message}:
                raise AirflowSensorTimeout(message)
        raise AirflowException(
            f"the trigger sent an event that this sensor does not know ({event!r:.200}): do the worker and"
            " the triggerer run the same version of Windsock?"
        )


def _at_least_one(min_files: int) -> int:
    if min_files < 1:
        raise SpecError(f"min_files must be at least 1, not {min_files!r}: no file is always there")
    return min_files

"""The registered webhook watchers, as the gateway needs them: looked up, compiled and kept for a moment."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from windsock.gateway.presets import PRESETS, Preset
from windsock.gateway.rate import TokenBucket
from windsock.gateway.refusal import Refused
from windsock.gateway.store import Store
from windsock.pipeline import Pipeline
from windsock.sources.webhook import WebhookConfig, WebhookSource
from windsock.spec import WatcherSpec

__all__ = ["Hook", "Hooks"]

logger = logging.getLogger("windsock.gateway.hooks")


@dataclass(slots=True)
class Hook:
    """One webhook watcher, ready to receive."""

    spec: WatcherSpec
    config: WebhookConfig
    pipeline: Pipeline
    bucket: TokenBucket
    preset: Preset | None = None
    paused: bool = False
    looked_at: float | None = None
    """When the backlog was last compared with the watcher's water marks."""


class Hooks:
    """Finds webhook watchers by name.

    Definitions are read from the log again after ``fresh`` seconds, and for a name that is not among them
    after ``miss`` seconds, so that a new watcher is found at once and guessing names costs little. An
    unchanged definition keeps its compiled pipeline and its rate.
    """

    def __init__(
        self,
        store: Store,
        *,
        fresh: float = 2.0,
        miss: float = 0.2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._fresh = fresh
        self._miss = miss
        self._clock = clock
        self._specs: dict[str, WatcherSpec] = {}
        self._ready: dict[str, Hook] = {}
        self._broken: set[str] = set()
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    async def find(self, name: str) -> Hook:
        """The watcher's hook; refuses with 404, or 503 if its definition does not work.

        A watcher of another kind is answered like one that does not exist, so that outsiders cannot learn
        of it. The names of webhook watchers are no secret: an unknown one is told from one that needs a
        signature.
        """
        await self._read(name)
        spec = self._specs.get(name)
        if spec is None:
            raise Refused(404, "there is no such webhook")
        hook = self._ready.get(name)
        if hook is None or hook.spec != spec:
            hook = await self._prepare(spec)
        return hook

    async def only(self) -> Hook:
        """The hook of the one webhook watcher there is; refuses with 422 if there are several."""
        await self._read(None)
        if len(self._specs) != 1:
            raise Refused(422, "name the watcher: add ?watcher=<name> or the header X-Windsock-Watcher")
        return await self.find(next(iter(self._specs)))

    async def check_backlog(self, hook: Hook) -> None:
        """Refuse with 503 between the high-water and the low-water mark: the sender keeps what it has."""
        now = self._clock()
        if hook.looked_at is None or now - hook.looked_at >= self._fresh:
            hook.looked_at = now
            backlog = await self._store.backlog(hook.spec.name)
            paused = backlog >= (hook.spec.low_water if hook.paused else hook.spec.high_water)
            if paused != hook.paused:
                logger.warning(
                    "windsock.gateway.%s watcher=%s backlog=%d",
                    "paused" if paused else "resumed",
                    hook.spec.name,
                    backlog,
                )
            hook.paused = paused
        if hook.paused:
            raise Refused(503, "too many events wait to be processed: try again later", retry_after=10)

    async def _read(self, name: str | None) -> None:
        if self._is_fresh(name):
            return
        async with self._reading:
            if self._is_fresh(name):
                return
            known = await self._store.watchers()
            specs = {spec.name: spec for spec in known if spec.kind == WebhookSource.kind}
            self._specs = specs
            self._ready = {name: hook for name, hook in self._ready.items() if name in specs}
            self._broken.clear()
            self._read_at = self._clock()

    def _is_fresh(self, name: str | None) -> bool:
        keep = self._fresh if name in self._specs else self._miss
        return self._read_at is not None and self._clock() - self._read_at < keep

    async def _prepare(self, spec: WatcherSpec) -> Hook:
        if spec.name in self._broken:
            raise _broken()
        try:
            config = msgspec.convert(spec.options, WebhookConfig)
            pipeline = await asyncio.to_thread(Pipeline.compile, spec)
        except Exception as error:  # compiling imports the user's own functions
            self._broken.add(spec.name)
            logger.error(
                "windsock.gateway.watcher_broken watcher=%s error=%s: %s",
                spec.name,
                type(error).__name__,
                error,
            )
            raise _broken() from error
        bucket = TokenBucket(config.rate, config.burst, clock=self._clock)
        made = Hook(spec, config, pipeline, bucket, PRESETS.get(config.preset or ""))
        ready = self._ready.get(spec.name)
        # Another request may have been quicker, and its bucket counts already.
        self._ready[spec.name] = ready if ready and ready.spec == spec else made
        return self._ready[spec.name]


def _broken() -> Refused:
    return Refused(503, "the watcher is declared wrongly: see the server's log", retry_after=30)

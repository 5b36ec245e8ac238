"""The demo from start to stop."""

from __future__ import annotations

import datetime as dt
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import msgspec
import typer

from windsock.cli.demo.doors import Sender, curl, parcels
from windsock.cli.demo.screen import Screen, make_screen
from windsock.cli.demo.site import DAGS, DemoError, Site, near
from windsock.cli.demo.trail import Row, Summary, Trail
from windsock.events import WindsockError
from windsock.log import LogUnavailable, open_log
from windsock.testing.airflow_api import AirflowApi, ApiError
from windsock.testing.stack import AirflowStack, StackError, StackTimeout

__all__ = ["play"]

_TICK = 0.5
_PAUSE_ONCE, _PAUSE_SHOW = 0.05, 0.8
_READY_SECONDS = 90.0
_INTERRUPTED = 130
_QUOTED_LINES = 5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def play(home: Path, *, port: int, once: bool, as_json: bool, timeout: float) -> int:
    """Run the demo; the exit code. Whatever happens, no process that it started is left."""
    site = Site(home)
    screen = make_screen(stderr=as_json)
    stack: AirflowStack | None = None
    with _signals_interrupt():
        try:
            with site.open():
                stack = site.stack(port)
                try:
                    return _Play(site, stack, screen, port).run(once=once, as_json=as_json, timeout=timeout)
                finally:
                    _ignore_signals()
                    screen.say("Stopping Airflow …")
                    stack.stop()
        except KeyboardInterrupt:
            screen.say(f"Stopped. What happened is kept in {near(site.home)}: start again to go on with it.")
            return _INTERRUPTED if once else 0
        except (WindsockError, StackError, ApiError, httpx.HTTPError) as error:
            _explain(error, site)
            return 2


class _Play:
    def __init__(self, site: Site, stack: AirflowStack, screen: Screen, port: int) -> None:
        self.site, self.stack, self.screen, self.port = site, stack, screen, port

    def run(self, *, once: bool, as_json: bool, timeout: float) -> int:
        with self.screen:
            self._start()
            with closing(open_log(f"sqlite:///{self.site.log_file}")) as log:
                self._await_dags(log)
                self._greet(once=once)
                trail = Trail(log, self.stack.api, began=time.time())
                summary = self._send_and_follow(trail, once=once, timeout=timeout)
                if not once:
                    self._your_turn(trail, summary)
        if as_json:
            typer.echo(msgspec.json.encode(summary).decode())
        else:
            self.screen.say(_in_words(summary))
        if summary.lost:
            self.screen.say(
                f"{summary.lost} of {summary.sent} events had not ended after {timeout:.0f} s. A slow "
                "machine may need a longer --timeout; else look at the logs in "
                f"{near(self.site.logs)} and at `windsock events --log {near(self.site.log_file)}`.",
                style="red",
            )
        return 0 if summary.clean else 1

    def _start(self) -> None:
        self.screen.say(f"{'Going on' if self.site.reused else 'First start'} in {near(self.site.home)}")
        with _Progress(self.stack, self.screen):
            self.stack.start(timeout=180.0)
        if self.stack.port != self.port:
            self.screen.say(f"Port {self.port} is busy: taking {self.stack.port}", style="yellow")

    def _await_dags(self, log: Any) -> None:
        """Wait until Airflow has read the Dags and Windsock knows who wants which events."""

        def ready() -> bool:
            broken = self.stack.api.import_errors()
            if broken:
                raise DemoError(f"Airflow cannot import {broken[0].filename}: {broken[0].stack_trace}")
            known = {place.dag_id for place in log.subscriptions() if place.active}
            self.screen.waiting("Dags", {f"Dag {dag_id}": dag_id in known for dag_id in DAGS})
            return known >= set(DAGS)

        self.stack.wait_for(ready, _READY_SECONDS, "Airflow to read the demo's Dags")

    def _greet(self, *, once: bool) -> None:
        say = self.screen.say
        say()
        say(f"Airflow   {self.stack.url}   (no login: everyone is an administrator)", style="bold")
        say(f"Files     drop a .csv with an 'amount' column into {near(self.site.inbox)}")
        say(f"Log       {near(self.site.log_file)}   (windsock status --log {near(self.site.log_file)})")
        if not once:
            say("Webhook   paste this into another terminal:")
            say()
            for line in curl(self.stack.url, self.site.secret()):
                say(f"  {line}", style="cyan")
        say()

    def _send_and_follow(self, trail: Trail, *, once: bool, timeout: float) -> Summary:
        """Send the demo's events and show them until they have ended, or the time is up."""
        sender = Sender(
            self.stack.url,
            self.site.inbox,
            self.site.secret(),
            parcels(),
            pause=_PAUSE_ONCE if once else _PAUSE_SHOW,
        )
        began = time.monotonic()
        sender.start()
        try:
            while time.monotonic() - began < timeout:
                if sender.error is not None:
                    raise sender.error
                complete = not sender.is_alive() and _ask(trail.settled, sender.parcels)
                self._show(trail, f"{len(sender.sent)} of {len(sender.parcels)} events sent")
                if complete:
                    break
                time.sleep(_TICK)
        finally:
            sender.stop()
        if len(sender.sent) < len(sender.parcels):
            raise DemoError(
                f"only {len(sender.sent)} of {len(sender.parcels)} events could be sent in {timeout:.0f} s: "
                f"a slow machine needs a longer --timeout; else look at the logs in {near(self.site.logs)}"
            )
        seconds = time.monotonic() - began
        return self.stack.wait_for(
            lambda: trail.summary(sender.parcels, seconds), 60.0, "Airflow to say which runs there were"
        )

    def _your_turn(self, trail: Trail, summary: Summary) -> None:
        self.screen.say(_in_words(summary), style="bold")
        self.screen.say("Your turn: drop files, call the webhook.", style="bold")
        while True:
            self._show(trail, "Ctrl-C stops everything.")
            time.sleep(_TICK)

    def _show(self, trail: Trail, below: str) -> None:
        rows: list[Row] | None = _ask(trail.rows, self.screen.rows)
        if rows is not None:
            self.screen.show(rows, below + self._restarts())

    def _restarts(self) -> str:
        """SQLite makes an Airflow component give up now and then; the demo does not hide it."""
        restarts = ", ".join(f"{name} {count} x" for name, count in self.stack.restarts.items())
        return f" · started again: {restarts}" if restarts else ""


class _Progress(threading.Thread):
    """Says which parts of Airflow are up, while the main thread waits for all of them."""

    def __init__(self, stack: AirflowStack, screen: Screen) -> None:
        super().__init__(name="demo-progress", daemon=True)
        self._stack, self._screen = stack, screen
        self._began = time.time()
        self._done = threading.Event()

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        while not self._done.wait(0.3):
            seconds = time.time() - self._began
            self._screen.waiting(f"Airflow starts, {seconds:.0f} s", self._parts())

    def _parts(self) -> dict[str, bool]:
        parts = {"database": any(self._stack.alive(name) for name in self._stack.components)}
        health: dict[str, dict[str, str | None]] = {}
        if parts["database"]:
            with closing(AirflowApi(f"http://127.0.0.1:{self._stack.port}", timeout=2.0)) as api:
                try:
                    health = api.health()
                except (httpx.HTTPError, ApiError):
                    pass  # not up yet
        parts["API server"] = bool(health)
        for part, name in (
            ("scheduler", "scheduler"),
            ("triggerer", "triggerer"),
            ("dag_processor", "Dag processor"),
        ):
            heartbeat = health.get(part, {}).get(f"latest_{part}_heartbeat")
            parts[name] = heartbeat is not None and _epoch(heartbeat) > self._began
        return parts


def _epoch(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


def _ask(question: Any, *args: Any) -> Any:
    """The answer, or None while the log is busy."""
    try:
        return question(*args)
    except LogUnavailable:
        return None


def _in_words(summary: Summary) -> str:
    return (
        f"{summary.sent} events sent, {summary.logged} logged, {summary.announced} announced to Airflow, "
        f"{summary.runs} runs: {summary.done} done, {summary.dead} set aside, {summary.lost} lost, "
        f"{summary.duplicated} duplicated, {summary.seconds} s"
    )


def _explain(error: Exception, site: Site) -> None:
    """What went wrong and where to look; of the logs that a message quotes, only the end."""
    first, *rest = str(error).splitlines() or [repr(error)]
    typer.echo(f"windsock: {first}", err=True)
    for line in [] if isinstance(error, StackTimeout) else rest[-_QUOTED_LINES:]:
        typer.echo(f"  {line}", err=True)
    if not isinstance(error, DemoError):
        typer.echo(f"windsock: the logs of all components are in {near(site.logs)}", err=True)


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM and a closed terminal stop the demo like Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    """Stopping takes seconds; a second Ctrl-C must not leave half of it behind."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)

"""`make services` and `make services-stop`: every real server on loopback, to try sources by hand.

    python -m windsock.testing.services start [NAME ...]    # fetch, start, print the Connections
    python -m windsock.testing.services list
    python -m windsock.testing.services stop

One supervisor process holds them all and ends them with itself; its pid and the Connections stand in
``.windsock/services``. ``stop`` ends exactly that process. Tests do not use these: they start their own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
from rich.console import Console
from rich.table import Table

from windsock.testing.processes import free_port, tail, wait_gone
from windsock.testing.services import SERVICES, Service, Unavailable, service_class

HOME = Path(".windsock/services")
STATE = HOME / "running.json"
console = Console(stderr=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m windsock.testing.services", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("action", choices=("start", "stop", "list", "install", "supervise"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(SERVICES)}; default all")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(SERVICES))
    if unknown:
        parser.error(f"no such service: {', '.join(unknown)} (there are: {', '.join(SERVICES)})")
    names = arguments.names or list(SERVICES)
    actions = {"start": start, "install": install, "supervise": supervise}
    if arguments.action in actions:
        return actions[arguments.action](names)
    return stop() if arguments.action == "stop" else show()


def install(names: list[str]) -> int:
    """Fetch the software of these servers; how many could not be had."""
    missing = 0
    for name in names:
        with console.status(f"fetching {name}"):
            try:
                service_class(name).install()
            except (Unavailable, OSError, subprocess.CalledProcessError) as error:
                missing += 1
                console.print(f"[red]{name}[/] cannot be had: {error}")
            else:
                console.print(f"[green]{name}[/] is here")
    return missing


def start(names: list[str]) -> int:
    """Start a supervisor for these servers and wait until all that can run do."""
    if _supervisor() is not None:
        console.print("services run already: `make services-stop` ends them")
        return show()
    missing = install(names)
    HOME.mkdir(parents=True, exist_ok=True)
    STATE.unlink(missing_ok=True)
    log = HOME / "supervisor.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "windsock.testing.services", "supervise", *names],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with console.status("starting"):
        while not STATE.exists():
            if child.poll() is not None:
                console.print(f"the supervisor ended with code {child.returncode}:\n{tail(log)}")
                return 1
            time.sleep(0.1)
    show()
    return 1 if missing else 0


def supervise(names: list[str]) -> int:
    """Hold the servers until told to end; the process behind ``start``."""
    running: list[Service] = []
    failed: dict[str, str] = {}
    stopping = False

    def end(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    for name in names:
        kind = service_class(name)
        if not kind.installed():
            failed[name] = "its software is not here"
            continue
        service = kind(HOME / "data", port=free_port(kind.default_port))
        try:
            service.start()
        except (RuntimeError, OSError, Unavailable) as error:
            failed[name] = str(error)
        else:
            running.append(service)
    _write_state(running, failed)
    while not stopping:
        time.sleep(0.2)
    for service in reversed(running):
        service.stop()
    return 0


def stop() -> int:
    """End the supervisor, and with it its servers and nothing else."""
    supervisor = _supervisor()
    if supervisor is None:
        console.print("no services run here")
        return 0
    supervisor.terminate()
    if wait_gone([supervisor], timeout=60.0):
        supervisor.kill()  # its guard process ends what it leaves behind
    STATE.unlink(missing_ok=True)
    console.print("stopped")
    return 0


def show() -> int:
    """Print the running servers, as a table or, into a pipe, as JSON."""
    if _supervisor() is None:
        console.print("no services run here: `make services` starts them")
        return 1
    state = json.loads(STATE.read_text())
    if not sys.stdout.isatty():
        print(json.dumps(state["connections"], indent=2))
        return 0
    table = Table("server", "port", "Airflow Connection")
    for name, row in state["connections"].items():
        table.add_row(name, str(row["port"]), f"AIRFLOW_CONN_{name.upper()}='{row['connection']}'")
    for name, reason in state["failed"].items():
        table.add_row(f"[red]{name}[/]", "", reason.splitlines()[0])
    Console().print(table)
    return 0


def _write_state(running: list[Service], failed: dict[str, str]) -> None:
    connections: dict[str, Any] = {}
    for service in running:
        fields = msgspec.structs.asdict(service.connection(service.name))
        plain = {n: v for n, v in fields.items() if v not in (None, {}, "") and n not in ("hook", "conn_id")}
        connections[service.name] = {"port": service.port, "connection": json.dumps(plain)}
    process = psutil.Process()
    state = {
        "pid": process.pid,
        "created": process.create_time(),
        "connections": connections,
        "failed": failed,
    }
    fresh = STATE.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(state))
    os.replace(fresh, STATE)


def _supervisor() -> psutil.Process | None:
    """The running supervisor, if it is the very one that wrote the state."""
    try:
        state = json.loads(STATE.read_text())
        process = psutil.Process(state["pid"])
    except (FileNotFoundError, psutil.NoSuchProcess):
        return None
    return process if abs(process.create_time() - state["created"]) < 0.01 else None


if __name__ == "__main__":
    sys.exit(main())

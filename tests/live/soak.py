"""The long kill test: ``make soak ARGS="--minutes 10 --seed 7"``. Prints its counts; exits 1 on any loss."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

import msgspec

from live.chaos import kill_everything
from live.field import open_field
from windsock.testing.postgres import PostgresServer


def main() -> int:
    """Run the kill test for some minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--per-second", type=float, default=10.0, help="files and webhooks a second, each")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    print(f"kill test: {options.minutes:g} minutes, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="windsock-soak-") as folder, PostgresServer() as postgres:
        place = Path(folder) / "field"
        place.mkdir()
        with open_field(place, postgres, "soak") as field:
            report = kill_everything(
                field, seconds=options.minutes * 60, per_second=options.per_second, seed=options.seed
            )
    print(msgspec.json.format(msgspec.json.encode(report)).decode())
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())

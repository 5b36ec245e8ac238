"""`python -m windsock.cli` is `windsock`."""

from __future__ import annotations

from windsock.cli import app

if __name__ == "__main__":
    app(prog_name="windsock")

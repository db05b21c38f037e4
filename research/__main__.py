"""`python -m research [NAME|FILE]`: replay a published claim, or the learned policy on held-out applications."""

from __future__ import annotations

import typer

from research.replay import replay
from wattflow.cli.screen import guarded

if __name__ == "__main__":
    typer.run(guarded(replay))

"""Runs that a report carries within itself: the dashboard's documents, packed for a page that is one file."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np

from wattflow.files.columns import Column, Values, pack, unpack
from wattflow.lab.show.run_columns import run_columns
from wattflow.model.run import Run

MOST_BYTES = 2_600_000
"""Of all runs of a report together, packed: with the page around them it stays a mail attachment."""

_LEFT_OUT = frozenset({"lane", "part", "marginal_j", "message", "wake", "cold", "data", "hold"})
_FORMS = {
    # Neighbours on a node start soon after each other, and stages lie close to the start.
    "attempts": {"node": "delta", "start": "delta", "ready": "start", "placed": "start", "end": "start"},
    "tasks": {"workflow": "delta", "release": "delta"},
    "edges": {"child": "delta", "parent": "child"},
    "workflows": {"submit": "delta"},
    "power": {"node": "delta", "time": "delta"},
}
"""Columns that are written as differences: to the row before, or to the column that is named."""

_MANTISSA = np.uint32(0xFFFFF000)
"""Keeps 11 bits of a float's mantissa (0.05 %), which is finer than any meter and packs in half the space."""


@dataclass(frozen=True, slots=True)
class EmbeddedRun:
    """One run within a page: ``text`` is base64 of its gzipped document."""

    workload: str
    policy: str
    text: str


def embedded(workload: str, policy: str, run: Run) -> EmbeddedRun:
    """Pack a run without the columns that a report does not show."""
    found = unpack(run_columns(run))
    tables = {
        name: {
            column: _column(values, _FORMS.get(name, {}).get(column, ""))
            for column, values in table.items()
            if name != "attempts" or column not in _LEFT_OUT
        }
        for name, table in found.tables.items()
    }
    strings = {name: list(texts) for name, texts in found.strings.items()}
    # Without a time, so that equal runs give equal bytes.
    data = gzip.compress(pack(found.about, strings, tables), 9, mtime=0)
    return EmbeddedRun(workload, policy, base64.b64encode(data).decode())


def _column(values: Values | Sequence[str], form: str) -> Column:
    if isinstance(values, np.ndarray) and values.dtype == np.float32:
        # To nearest, not cut off: half of the last bit that stays is added before.
        values = (values.view(np.uint32) + np.uint32(0x800) & _MANTISSA).view(np.float32)
    return Column(values, form=form) if form in ("", "delta") else Column(values, form="after", of=form)


def page_asset(ending: str) -> str:
    """Return the dashboard's script (``js``) or style sheet (``css``), which a report has within itself."""
    folder = resources.files("wattflow") / "data" / "web" / "assets"
    found = [entry for entry in folder.iterdir() if entry.name.endswith(f".{ending}")]
    return found[0].read_text(encoding="utf-8")

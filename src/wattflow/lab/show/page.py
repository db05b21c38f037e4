"""Parts of every page of ours: its frame, its contents, boxes around figures with their numbers."""

from __future__ import annotations

import base64
import gzip
import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

import numpy as np

from wattflow.files.columns import Column, Values, pack, unpack
from wattflow.lab.show.run_columns import run_columns
from wattflow.model.run import Run

MOST_BYTES = 2_600_000
"""Of all runs of a report together, packed: with the page around them it stays a mail attachment."""

_WEB = resources.files("wattflow") / "data" / "web"
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
    names = [entry.name.removesuffix(".xz") for entry in (_WEB / "assets").iterdir()]
    return web_file(next(f"assets/{name}" for name in names if name.endswith(f".{ending}"))).decode()


def web_file(path: str) -> bytes:
    """Return a file of the dashboard; a wheel holds its script packed by xz (`setup.py`)."""
    try:
        return _WEB.joinpath(path).read_bytes()
    except FileNotFoundError:
        return lzma.decompress(_WEB.joinpath(f"{path}.xz").read_bytes())


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page that the contents name. ``key`` is its anchor."""

    key: str
    title: str
    body: str


def document(title: str, head: str, sections: Sequence[Section], tail: str, runs: Sequence[EmbeddedRun]) -> str:
    """Return the whole page: head, contents, sections, tail, then the runs and the scripts that draw and sort."""
    links = "".join(f'<a href="#{each.key}">{escape(each.title)}</a>' for each in sections)
    parts = "\n".join(f'<section id="{s.key}"><h2>{escape(s.title)}</h2>{s.body}</section>' for s in sections)
    named = [{"id": f"run-{i}", "workload": run.workload, "policy": run.policy} for i, run in enumerate(runs)]
    kept = "".join(f'<script type="text/plain" id="run-{i}">{run.text}</script>' for i, run in enumerate(runs))
    style = asset("report.css") + (page_asset("css") if runs else "")
    # A closing tag within a script would end it.
    drawing = f"<script>{page_asset('js').replace('</', '<' + chr(92) + '/')}</script>" if runs else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style}</style></head><body><main>'
        f'{head}<nav aria-label="contents">{links}</nav>\n{parts}\n{tail}</main>'
        f'<script type="application/json" id="runs">{json_for_page(named)}</script>{kept}'
        f"<script>{asset('page.js')}</script>{drawing}</body></html>\n"
    )


def figure(name: str, drawing: str, rows: Sequence[Mapping[str, object]]) -> str:
    """Return a drawing with its caption and the numbers behind it, which the page's script offers as SVG and as CSV."""
    named = drawing.replace('role="img"', f'role="img" aria-label="{escape(name)}"', 1)
    return (
        f'<figure data-name="{escape(name)}"><figcaption>{escape(name)}</figcaption>{named}'
        f'<script type="application/json" class="rows">{json_for_page(list(rows))}</script></figure>'
    )


def json_for_page(data: object) -> str:
    """JSON that cannot end the script element it stands in."""
    # NaN is no JSON; a closing tag would end the script element.
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")


def asset(name: str) -> str:
    """Return the style sheet or a script of a report."""
    return (resources.files("wattflow") / "data" / "report" / name).read_text(encoding="utf-8")


def legend(parts: Sequence[str]) -> str:
    """Colours of the classes ``c-<part>``."""
    keys = "".join(f'<span><i class="c-{part}"></i>{part.replace("_", " ")}</span>' for part in parts)
    return f'<p class="legend">{keys}</p>'

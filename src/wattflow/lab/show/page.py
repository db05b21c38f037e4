"""Parts of every page of ours: its frame, its contents, boxes around figures with their numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from wattflow.lab.show.embed import EmbeddedRun, page_asset


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

"""Line charts with linear or logarithmic scales, and heat maps, as text. No library, no script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from wattflow.lab.show.svg import ticks

COLOURS = 8
DASHES = ("", "6 3", "2 3")
WIDTH, HEIGHT = 560.0, 330.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 12.0, 10.0, 42.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers to places: linear, or by their logarithm (then all are above 0)."""

    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high end; not cut off."""
        if self.log:
            # Both above 0: who makes a logarithmic scale sees to that.
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round numbers; powers of ten on a logarithmic scale."""
        if not self.log:
            return ticks(self.low, self.high)
        # A power of ten at the edge counts, whatever the rounding.
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        return [10.0**k for k in range(first, last + 1)]


Line = tuple[str, Sequence[float], Sequence[float]]
"""Name, x and y."""


def stroke(number: int) -> str:
    """Style of the n-th line: eight colours, then dashes."""
    dash = DASHES[number // COLOURS % len(DASHES)]
    return f"stroke:var(--g{number % COLOURS})" + (f";stroke-dasharray:{dash}" if dash else "")


def lines_legend(names: Sequence[str]) -> str:
    """Draw names beside a piece of their line."""
    keys = "".join(
        f'<span><svg class="key" viewBox="0 0 26 8"><line x1="0" x2="26" y1="4" y2="4" style="{stroke(n)}"/></svg>'
        f"{escape(name)}</span>"
        for n, name in enumerate(names)
    )
    return f'<p class="legend">{keys}</p>'


def line_chart(lines: Sequence[Line], x: Scale, y: Scale, labels: tuple[str, str], *, stairs: bool = False) -> str:
    """Lines over two scales; points outside them are cut off."""
    inner_w, inner_h = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    out = _grid(x, y, labels)
    for number, (name, xs, ys) in enumerate(lines):
        path, last = "", 0.0
        for a, b in zip(xs, ys):
            # Too low is cut off; too high is drawn at the top, so that a line does not vanish.
            if not x.low <= a <= x.high or b < y.low:
                continue
            px, py = LEFT + x.share(a) * inner_w, TOP + (1.0 - min(1.0, y.share(b))) * inner_h
            path += f"M{px:.1f} {py:.1f}" if not path else f"H{px:.1f}V{py:.1f}" if stairs else f"L{px:.1f} {py:.1f}"
            last = py
        if path:
            shape = f'd="{path}" style="{stroke(number)}" data-end="{last:.0f}"'
            out.append(f'<path class="line" {shape}><title>{escape(name)}</title></path>')
    return f'<svg class="lines" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img">{"".join(out)}</svg>'


def _grid(x: Scale, y: Scale, labels: tuple[str, str]) -> list[str]:
    inner_w, inner_h = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    out = []
    for value in y.ticks():
        at = TOP + (1.0 - y.share(value)) * inner_h
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        out.append(f'<text class="tick" x="{LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{value:,g}</text>')
    for value in x.ticks():
        at = LEFT + x.share(value) * inner_w
        out.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        out.append(f'<text class="tick" x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:,g}</text>')
    middle_x, middle_y = LEFT + inner_w / 2, TOP + inner_h / 2
    out.append(f'<text class="label" x="{middle_x}" y="{HEIGHT - 6}" text-anchor="middle">{escape(labels[0])}</text>')
    turned = f'transform="translate(13 {middle_y}) rotate(-90)" text-anchor="middle"'
    out.append(f'<text class="label" {turned}>{escape(labels[1])}</text>')
    return out


def heat_map(
    rows: Sequence[str], columns: Sequence[str], value: Mapping[tuple[str, str], float | None], corner: str
) -> str:
    """Draw a table whose cells are coloured by the logarithm of their value within each column: pale is least."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    spans = {column: _span([value.get((row, column)) for row in rows]) for column in columns}
    body = []
    for row in rows:
        cells = "".join(_cell(value.get((row, column)), spans[column]) for column in columns)
        body.append(f"<tr><th>{escape(row)}</th>{cells}</tr>")
    return (
        f'<div class="wide"><table class="heat"><thead><tr><th>{escape(corner)}</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _span(values: Sequence[float | None]) -> tuple[float, float]:
    known = [math.log(value) for value in values if value is not None and value > 0]
    return (min(known), max(known)) if known else (0.0, 0.0)


def _cell(value: float | None, span: tuple[float, float]) -> str:
    if value is None or value <= 0:
        return f"<td>{'–' if value is None else '0'}</td>"
    # Relative within its column: figures of different workloads are decades apart.
    share = (math.log(value) - span[0]) / (span[1] - span[0]) if span[1] > span[0] else 0.0
    return f'<td style="--heat:{round(4 + 66 * share)}%">{value:,.4g}</td>'

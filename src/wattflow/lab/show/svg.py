"""Charts drawn as SVG text: a scatter with its Pareto front, stacked bars, lines, heat maps. No library, no script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from wattflow.lab.figures.statistics import pareto_front

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


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers that span [low, high]."""
    if not high > low:
        return [low]
    raw = (high - low) / wanted
    size = 10.0 ** math.floor(math.log10(raw))
    # Nice steps only: 1, 2, 2.5, 5 and 10.
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw)
    # A tick at the very edge counts, whatever the rounding.
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of the scatter with the half widths of its intervals."""

    name: str
    x: float
    y: float
    x_half: float = 0.0
    y_half: float = 0.0
    marked: bool = False


@dataclass(frozen=True, slots=True)
class _Frame:
    """The plotting area and its two scales."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: float = 560.0
    height: float = 360.0
    left: float = 66.0
    right: float = 24.0
    top: float = 14.0
    bottom: float = 44.0

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        inner_w, inner_h = self.width - self.left - self.right, self.height - self.top - self.bottom
        return self.left + across * inner_w, self.top + (1.0 - up) * inner_h

    def axes(self, x_label: str, y_label: str) -> list[str]:
        parts = []
        for value in ticks(*self.y):
            _, y = self.at(self.x[0], value)
            parts.append(
                f'<line class="grid" x1="{self.left}" x2="{self.width - self.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            parts.append(f'<text class="tick" x="{self.left - 8}" y="{y + 4:.1f}" text-anchor="end">{value:,g}</text>')
        for value in ticks(*self.x):
            x, base = self.at(value, self.y[0])
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{self.top}" y2="{base:.1f}"/>')
            parts.append(f'<text class="tick" x="{x:.1f}" y="{base + 17:.1f}" text-anchor="middle">{value:,g}</text>')
        middle_x, middle_y = (self.left + self.width - self.right) / 2, (self.top + self.height - self.bottom) / 2
        parts.append(f'<text class="label" x="{middle_x}" y="{self.height - 6}" text-anchor="middle">{x_label}</text>')
        parts.append(
            f'<text class="label" transform="translate(14 {middle_y}) rotate(-90)" text-anchor="middle">'
            f"{y_label}</text>"
        )
        return parts


FAR = 3.0
"""A dot is far when the axis would be so many times as long because of it."""
MOST_NAMED = 14
"""Above so many places only the front, the marked and the followed dot are named."""
_AROUND = ((9.0, 0.0), (9.0, -13.0), (9.0, 13.0), (-9.0, 0.0), (-9.0, -13.0), (-9.0, 13.0), (0.5, -16.0), (0.5, 16.0))
LETTER, GAP = 6.8, 6.0
"""Width of a letter of a name, and the least room between two names."""
_PLACES = tuple(
    (dx * (1.0 + (reach - 1.0) / 3.0), 4.0 + dy * reach) for reach in (1.0, 2.0, 3.2, 4.6, 6.2) for dx, dy in _AROUND
)
"""Where a name may stand beside its dot, nearest first; left of it where the offset is negative."""


def scatter(dots: Sequence[Dot], x_label: str, y_label: str, followed: str | None = None) -> str:
    """Draw every policy as a dot with its intervals; the front is joined as stairs.

    Every place is named while they are few, else the front, the marked and the ``followed`` dot. Equal dots share one
    name. Dots far from all others would squeeze those: they stand as triangles at the edge, with their value.
    """
    if not dots:
        return "<p>Nothing to draw: energy or makespan is unknown.</p>"
    front = pareto_front([d.x for d in dots], [d.y for d in dots]).tolist()
    reach_x, reach_y = _reach([d.x for d in dots]), _reach([d.y for d in dots])
    given, dots = dots, [_held(dot, reach_x, reach_y) for dot in dots]
    frame = _Frame(_padded([(d.x, d.x_half) for d in dots]), _padded([(d.y, d.y_half) for d in dots]))
    parts = frame.axes(escape(x_label), escape(y_label))
    parts.append(f'<path class="front" d="{_stairs(frame, [dots[i] for i in front])}"/>')
    # The front is drawn last, on top of what lies behind it.
    order = sorted(range(len(dots)), key=lambda i: (i in front, dots[i].marked))
    for i in order:
        dot, (x, y) = dots[i], frame.at(dots[i].x, dots[i].y)
        kind = "dot base" if dot.marked else "dot best" if i in front else "dot"
        true = given[i]
        about = f"{true.name}: {true.x:,.4g} ±{true.x_half:.2g}, {true.y:,.4g} ±{true.y_half:.2g}"
        parts += _whiskers(frame, dot) if i in front else []
        beyond = (true.x > reach_x[1], true.y > reach_y[1])
        parts.append(
            f"{_mark(kind, x, y, beyond)}<title>{escape(about)}</title></{'path' if any(beyond) else 'circle'}>"
        )
    first = [
        *front,
        # Whoever was moved to the edge is named, or its triangle would mean nothing.
        *(i for i in reversed(order) if dots[i].marked or dots[i] is not given[i] or given[i].name == followed),
    ]
    box = f"0 0 {frame.width:g} {frame.height:g}"
    names = _names(frame, dots, list(dict.fromkeys([*first, *reversed(order)])), len(first))
    return f'<svg class="scatter" viewBox="{box}" role="img">{"".join(parts + names)}</svg>'


def _reach(values: Sequence[float]) -> tuple[float, float]:
    """From where to where the dots of an axis lie, but for the one in ten (at least one) far above all others."""
    ordered = sorted(values)
    # One in ten at most: more than that is a spread, not an outlier.
    for left_out in range(1, max(1, len(ordered) // 10) + 1):
        kept = ordered[:-left_out]
        if len(kept) > 2 and kept[-1] > kept[0] and ordered[-left_out] - kept[0] > FAR * (kept[-1] - kept[0]):
            return kept[0], kept[-1]
    return ordered[0], ordered[-1]


def _held(dot: Dot, x: tuple[float, float], y: tuple[float, float]) -> Dot:
    """Return the dot, or one a little outside of the axes' reach, with its true value in its name."""
    if dot.x <= x[1] and dot.y <= y[1]:
        return dot
    true = [f"→ {dot.x:,.3g}"] if dot.x > x[1] else []
    true += [f"↑ {dot.y:,.3g}"] if dot.y > y[1] else []
    edge_x, edge_y = (high + 0.06 * (high - low) for low, high in (x, y))
    return Dot(f"{dot.name} {' '.join(true)}", min(dot.x, edge_x), min(dot.y, edge_y), marked=dot.marked)


def _mark(kind: str, x: float, y: float, beyond: tuple[bool, bool]) -> str:
    """Draw a circle, or a triangle that points to where its dot is; both are open for a title."""
    if beyond[0]:
        return f'<path class="{kind}" d="M{x - 5:.1f} {y - 6:.1f}L{x + 6:.1f} {y:.1f}L{x - 5:.1f} {y + 6:.1f}Z">'
    if beyond[1]:
        return f'<path class="{kind}" d="M{x - 6:.1f} {y + 5:.1f}L{x:.1f} {y - 6:.1f}L{x + 6:.1f} {y + 5:.1f}Z">'
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5">'


def _names(frame: _Frame, dots: Sequence[Dot], order: Sequence[int], needed: int) -> list[str]:
    """Draw names of the dots in this order, each where it covers neither a name nor a dot."""
    places: dict[tuple[int, int], list[str]] = {}
    for i in order:
        x, y = frame.at(dots[i].x, dots[i].y)
        # By whole pixels: dots that lie on one another share a name.
        places.setdefault((round(x), round(y)), []).append(dots[i].name)
    # Dots are in the way as well: a name covers none.
    taken = [(x - 5.0, y - 5.0, x + 5.0, y + 5.0) for x, y in places]
    important = {(round(x), round(y)) for x, y in (frame.at(dots[i].x, dots[i].y) for i in order[:needed])}
    few = len(places) <= MOST_NAMED
    return [_label(frame, at, _together(names), taken) for at, names in places.items() if few or at in important]


def _together(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 3 else f"{names[0]} + {len(names) - 1}"


def _label(frame: _Frame, at: tuple[float, float], name: str, taken: list[tuple[float, float, float, float]]) -> str:
    """Draw the name at the first free place around its dot, joined to it by a line where it stands further off."""
    (x, y), width = at, LETTER * len(name)
    # Nearest place first; without any free one the name is left out, not drawn over others.
    for dx, dy in _PLACES:
        left = x + dx - width if dx < 0 else x + dx - width / 2 if dx < 1 else x + dx
        box = (left, y + dy - 10, left + width, y + dy + 2)
        inside = box[0] >= frame.left and box[2] <= frame.width - 2 and box[1] >= 0 and box[3] <= frame.height - 40
        if inside and not any(
            box[0] < b[2] + GAP and b[0] < box[2] + GAP and box[1] < b[3] and b[1] < box[3] for b in taken
        ):
            taken.append(box)
            return f'{_joint((x, y), box, dy)}<text class="name" x="{left:.1f}" y="{y + dy:.1f}">{escape(name)}</text>'
    return ""


def _joint(at: tuple[float, float], box: tuple[float, float, float, float], dy: float) -> str:
    if -12 <= dy <= 20:
        return ""
    x, y = min(max(at[0], box[0]), box[2]), box[1] if dy > 0 else box[3]
    return f'<line class="joint" x1="{at[0]:.1f}" y1="{at[1]:.1f}" x2="{x:.1f}" y2="{y:.1f}"/>'


def _stairs(frame: _Frame, front: Sequence[Dot]) -> str:
    path = ""
    for number, dot in enumerate(front):
        x, y = frame.at(dot.x, dot.y)
        path += f"M{x:.1f} {y:.1f}" if number == 0 else f"H{x:.1f}V{y:.1f}"
    return path


def _whiskers(frame: _Frame, dot: Dot) -> list[str]:
    lines = []
    for dx, dy in ((dot.x_half, 0.0), (0.0, dot.y_half)):
        if dx or dy:
            low_x, high_x = max(dot.x - dx, frame.x[0]), min(dot.x + dx, frame.x[1])
            low_y, high_y = max(dot.y - dy, frame.y[0]), min(dot.y + dy, frame.y[1])
            (x1, y1), (x2, y2) = frame.at(low_x, low_y), frame.at(high_x, high_y)
            lines.append(f'<line class="whisker" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')
    return lines


def _padded(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Range of the dots with room around; long whiskers get at most 40 % of the dots' spread and are cut off there."""
    low, high = min(v for v, _ in values), max(v for v, _ in values)
    # All equal: a tenth around them, or anything above 0.
    spread = (high - low) or 0.1 * abs(high) or 1.0
    below, above = max(low - v + h for v, h in values), max(v + h - high for v, h in values)
    room = 0.08 * spread
    # Makespan and energy are never below 0.
    return max(0.0, low - room - min(below, 0.4 * spread)), high + room + min(above, 0.4 * spread)


def stacked_bars(
    rows: Sequence[tuple[str, Sequence[float]]], parts: Sequence[str], unit: str, left: float = 150.0
) -> str:
    """Horizontal bars, one per row, split into parts; colours are the classes ``c-<part>`` of the style sheet."""
    most = max((sum(values) for _, values in rows), default=0.0)
    if most <= 0:
        return "<p>Nothing to draw: all are 0 or unknown.</p>"
    width, line = 760.0, 20.0
    height = line * len(rows) + 34
    out = []
    for value in ticks(0.0, most):
        x = left + (width - left - 70) * value / most
        out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{height - 28:.0f}"/>')
        out.append(f'<text class="tick" x="{x:.1f}" y="{height - 12:.0f}" text-anchor="middle">{value:,g}</text>')
    out.append(f'<text class="tick" x="{width - 4}" y="{height - 12:.0f}" text-anchor="end">{escape(unit)}</text>')
    for number, (name, values) in enumerate(rows):
        y, x = 4 + number * line, left
        out.append(f'<text class="name" x="{left - 8}" y="{y + 13:.1f}" text-anchor="end">{escape(name)}</text>')
        for part, value in zip(parts, values, strict=True):
            length = (width - left - 70) * value / most
            if length > 0:
                about = escape(f"{name}: {part.replace('_', ' ')} {value:,.4g} {unit}")
                shape = f'x="{x:.2f}" y="{y:.1f}" width="{length:.2f}" height="{line - 5}"'
                out.append(f'<rect class="c-{part}" {shape}><title>{about}</title></rect>')
                x += length
        out.append(f'<text class="tick" x="{x + 6:.1f}" y="{y + 12:.1f}">{sum(values):,.4g}</text>')
    return f'<svg class="bars" viewBox="0 0 {width:g} {height:g}" role="img">{"".join(out)}</svg>'

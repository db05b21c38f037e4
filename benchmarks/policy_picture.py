"""The picture of `make bench-policy`: energy against response; a mark a policy, labels that do not overlap."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

Place = tuple[float, float]
OFFSETS = tuple(
    (side * (4 + 3 * far), up * 9)
    for far in range(0, 10, 3)
    for up in (0, 1, -1, 2, -2, 3, -3, 4, -4)
    for side in (1, -1)
)
"""Where a label may stand beside its mark, in points, the nearest first."""


@dataclass(frozen=True, slots=True)
class Words:
    """Our policy, the one that all are measured by, and the bound on waiting."""

    ours: str
    baseline: str
    bound: float


def draw(path: Path, places: Mapping[str, Place], front: Sequence[str], words: Words) -> None:
    """Draw (response, energy) of each policy over the baseline's; ``front`` is joined by a line."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    figure = Figure(figsize=(10, 7), layout="constrained")
    axes = figure.subplots()
    known = [name for name in front if name in places]
    axes.plot(*zip(*(places[name] for name in known), strict=True), marker="o", label=f"{words.ours}, by its dial wait")
    others = [place for name, place in places.items() if name not in known]
    axes.plot(*zip(*others, strict=True), marker="x", linestyle="", color="0.4")
    axes.axvline(words.bound, linestyle=":", color="0.6", label=f"bound, {words.bound:g}")
    axes.set(xscale="log", xlabel=f"mean response, {words.baseline} = 1", ylabel=f"energy, {words.baseline} = 1")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    low, high = (edge(place[0] for place in places.values()) for edge in (min, max))
    axes.set_xlim(low / 1.1, high * 1.25)
    axes.set_xticks([tick for tick in (0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100) if low / 1.1 <= tick <= high * 1.25])
    axes.grid(color="0.92")
    axes.legend(loc="center right")
    figure.canvas.draw()
    label(axes, marks(places, words.ours), [places[name] for name in known])
    figure.savefig(path, dpi=110)


def marks(places: Mapping[str, Place], ours: str) -> dict[Place, str]:
    """The text at each place; policies that lie on one another share one."""
    found: dict[Place, list[str]] = {}
    for name, (x, y) in places.items():
        near = next((at for at in found if abs(at[0] / x - 1) < 0.004 and abs(at[1] - y) < 0.004), (x, y))
        found.setdefault(near, []).append(name.removeprefix(f"{ours}:"))
    return {at: ", ".join(names) for at, names in found.items()}


def label(axes: Axes, texts: Mapping[Place, str], line: Sequence[Place]) -> None:
    """Write each text at the first offset where it covers no mark, no text that stands already, and not the line."""
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    spots = [axes.transData.transform(place) for place in texts]
    joints = [axes.transData.transform(place) for place in line]
    spots += [a + (b - a) * k / 50 for a, b in itertools.pairwise(joints) for k in range(51)]
    taken: list[Bbox] = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in spots]
    for place, text in sorted(texts.items(), key=lambda item: item[0]):
        best = None
        for right, up in OFFSETS:
            note = axes.annotate(
                text, place, (right, up), textcoords="offset points", fontsize=7, va="center",
                ha="left" if right > 0 else "right",
                arrowprops={"arrowstyle": "-", "color": "0.7", "lw": 0.5, "shrinkA": 0, "shrinkB": 2},
            )  # fmt: skip
            note.set_in_layout(False)
            note.get_window_extent()  # sets where the text stands
            box = Text.get_window_extent(note).padded(1)  # the text's alone: the arrow ends at its own mark
            covered = sum(box.overlaps(other) for other in taken) + (not _inside(axes.bbox, box))
            if best is None or covered < best[0]:
                if best is not None:
                    best[1].remove()
                best = (covered, note, box)
            else:
                note.remove()
            if covered == 0:
                break
        if best is not None:
            taken.append(best[2])


def _inside(frame: Bbox, box: Bbox) -> bool:
    return bool(frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1)

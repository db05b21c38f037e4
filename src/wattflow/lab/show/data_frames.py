"""A comparison where researchers work: pandas, LaTeX, notebooks, matplotlib."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

from wattflow.lab.compare.results import Results
from wattflow.lab.show import answer
from wattflow.lab.show.result_tables import comparison_rows
from wattflow.model.errors import MissingExtra
from wattflow.model.units import J_PER_KWH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def to_pandas(comparison: Results, metrics: Iterable[str]) -> pd.DataFrame:
    """One row per workload, policy and figure."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtra("to_pandas() needs pandas: pip install pandas") from error
    return pd.DataFrame(comparison_rows(comparison, metrics))


def _cells(comparison: Results, workload: str) -> list[list[str]]:
    """Head and rows of the short table, as texts."""
    # All rows: a paper's table leaves nobody out.
    table = answer.short_table(comparison, workload, None)
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    return [[str(column.header) for column in table.columns], *map(list, zip(*columns, strict=True))]


_LATEX = {"&": r"\&", "%": r"\,\%", "_": r"\_", "×": r"$\times$", "±": r"$\pm$", "−": r"$-$", "₂": r"$_2$", "–": "--"}


def to_latex(comparison: Results, workload: str) -> str:
    """A tabular with booktabs' rules."""

    def clean(text: str) -> str:
        return "".join(_LATEX.get(letter, letter) for letter in text)

    head, *rows = ([clean(cell) for cell in row] for row in _cells(comparison, workload))
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", " & ".join(head) + r" \\", r"\midrule"]
    return "\n".join([*lines, *(" & ".join(row) + r" \\" for row in rows), r"\bottomrule", r"\end{tabular}"]) + "\n"


def to_html(comparison: Results) -> str:
    """The answer and one table per workload, for a notebook."""
    parts = [f"<p>{html.escape(answer.sentence(comparison))}</p>"]
    for workload in comparison.workloads:
        head, *rows = _cells(comparison, workload)
        cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        parts.append(f"<h4>{html.escape(workload)}</h4><table><tr>{cells}</tr>{body}</table>")
    return "".join(parts)


def plot(comparison: Results, workload: str) -> Figure:
    """Energy against makespan; policies that no other beats in both are filled."""
    figure = new_figure()
    axes = figure.subplots()
    front = set(comparison.front(workload))
    for policy in comparison.policies:
        span = comparison.summary(workload, policy, "makespan_s").mean
        energy = comparison.summary(workload, policy, "energy_j").mean
        if span is None or energy is None:
            continue
        axes.plot(span, energy / J_PER_KWH, "o", color="tab:blue", fillstyle="full" if policy in front else "none")
        axes.annotate(policy, (span, energy / J_PER_KWH), fontsize=7, xytext=(3, 3), textcoords="offset points")
    axes.set(xlabel="makespan, s", ylabel="energy, kWh", title=f"{workload} on {comparison.cluster.name}")
    axes.grid(color="0.9")
    return figure


def new_figure(width: float = 7.0, height: float = 4.2) -> Figure:
    """A figure of this many inches. Needs the extra ``report``."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("pictures need matplotlib: pip install 'wattflow[report]'") from error
    return Figure(figsize=(width, height), layout="constrained")

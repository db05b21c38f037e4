"""`wattflow workload generate`: workloads of our own making."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.screen import check_outputs, print_tables, remark
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from rich.table import Table


def generate(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="FAMILY:key=value,…", help="As in map-reduce:tasks=50,workflows=10; --list shows families and keys."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="File to write; its name chooses the format, .json is WfFormat."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, callback=o.seed, help="Same seed, same bytes.")
    ] = 0,
    list_all: Annotated[bool, typer.Option("--list", help="List families, keys, distributions and arrivals.")] = False,
    force: o.Force = False,
    quiet: o.Quiet = False,
) -> None:
    """Make a workload and write it as a trace.

    From a parametric family of DAGs with heavy-tailed runtimes and arrivals; the same seed gives the same bytes.

    Example: wattflow workload generate montage:tasks=200,runtime=pareto,mean=30s --seed 1 --out montage.json
    """
    # Without a recipe the list is the answer: there is nothing to guess.
    if list_all or recipe is None:
        print_tables(list(_catalogue()))
        return
    from wattflow import traces
    from wattflow.generate.recipe import Recipe
    from wattflow.sim.inputs import source_of

    source = source_of(recipe)
    if not isinstance(source, Recipe):
        raise InvalidInput(recipe, "is a file; give a family, as in montage:tasks=200")
    if out is None:
        raise InvalidInput(
            "generate", "needs a file to write: add --out FILE; `wattflow workload describe` looks without writing"
        )
    check_outputs(force, out)
    workload = source.draw(seed)
    dropped = traces.save(workload, out)
    remark(f"wrote {out}: {len(workload):,} tasks in {len(workload.workflow_names):,} workflows", quiet)
    for note in dropped:
        remark(f"note: left out: {note}", quiet)


def _catalogue() -> Iterator[Table]:
    """List what may be generated, as tables."""
    from rich import box
    from rich.table import Table

    from wattflow.generate import ARRIVALS, DEMOS, FAMILIES, LAWS
    from wattflow.generate.recipe import KEYS_ABOUT

    # The first line of a family's docstring is its entry in this list.
    families = {name: (family.__doc__ or "").split("\n")[0] for name, family in FAMILIES.items()}
    bundled = {f"demo:{name}": f"{recipe.family}, bundled with `wattflow demo`" for name, recipe in DEMOS.items()}
    lists = {
        "family": families | bundled,
        "key": KEYS_ABOUT,
        "distribution (runtime=, file=)": LAWS,
        "arrivals=": ARRIVALS,
    }
    for title, rows in lists.items():
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column(title, no_wrap=True)
        table.add_column("")
        for name, about in rows.items():
            table.add_row(name, about)
        yield table

"""The DAG of a Nextflow run (``-with-dag run.dot``) laid over its trace.

The file draws processes and channels; a trace has tasks. An edge from process A to process B makes the tasks of A that
worked on the same input (tag) parents of B's task, or all of A's where none has its tag: a step that gathers. A task
that ended after the other was submitted was none of its parents.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wattflow.model.errors import InvalidInput
from wattflow.traces.source import read_text, stem

# Nodes and edges of Graphviz's language as Nextflow writes it; anything else in the file is passed
# over.
_NODE = re.compile(r'^\s*"?([\w.:-]+)"?\s*\[[^\]]*?\blabel="([^"]*)"', re.M)
_EDGE = re.compile(r'^\s*"?([\w.:-]+)"?\s*->\s*"?([\w.:-]+)"?', re.M)


@dataclass(frozen=True, slots=True)
class Done:
    """A task of the trace: the run it belongs to, its process and tag, when it was submitted and ended (or nan)."""

    run: int
    process: str
    tag: str
    submit_s: float
    end_s: float


def beside(path: Path) -> Path | None:
    """Return the DAG that lies beside a trace: ``trace.dot`` for ``trace.csv``, or ``dag.dot``."""
    for name in (f"{stem(path)}.dot", "dag.dot"):
        if (path.parent / name).is_file():
            return path.parent / name
    return None


def edges(dag: Path, tasks: Sequence[Done]) -> tuple[np.ndarray, np.ndarray]:
    """Return (parents, children) among the tasks, by their positions.

    Raises:
        InvalidInput: The file names no process of the trace, or its processes are in a cycle.
    """
    above = _processes(dag, {task.process for task in tasks})
    by_process: dict[tuple[int, str], list[int]] = defaultdict(list)
    for i, task in enumerate(tasks):
        by_process[task.run, task.process].append(i)
    pairs = [
        (parent, i)
        for i, task in enumerate(tasks)
        for process in above.get(task.process, ())
        for parent in _parents(tasks, i, by_process[task.run, process])
    ]
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _parents(tasks: Sequence[Done], child: int, before: Sequence[int]) -> list[int]:
    task = tasks[child]
    ended = [i for i in before if not tasks[i].end_s > task.submit_s]  # an unknown end is no reason
    alike = [i for i in ended if task.tag and tasks[i].tag == task.tag]
    # Nobody of the same tag: the step gathers, so all that had ended by then are its parents.
    return alike or ended


def _processes(dag: Path, known: Iterable[str]) -> dict[str, list[str]]:
    """Return processes right above each process; channels and operators between them are passed through."""
    text = read_text(dag)
    short: dict[str, list[str]] = defaultdict(list)
    for name in sorted(known):
        # Traces have full names ("NFCORE:RNASEQ:ALIGN"), drawings often the last part alone.
        short[name.rsplit(":", 1)[-1]].append(name)
    named = dict(_NODE.findall(text))
    full = {node: _match(label, short) for node, label in named.items()}
    ends: dict[str, list[str]] = defaultdict(list)
    for above, below in _EDGE.findall(text):
        ends[below].append(above)
    processes = {name: node for node, name in full.items() if name is not None}
    if not processes:
        raise InvalidInput(str(dag), f"draws no process of the trace, which has {', '.join(sorted(known)[:5])}")
    parents = {name: _reached(node, ends, full) for name, node in processes.items()}
    _refuse_cycles(dag, parents)
    return parents


def _match(label: str, short: Mapping[str, Sequence[str]]) -> str | None:
    """Return the process of the trace that a label means: its full name, or the only one that ends so."""
    likely = short.get(label.rsplit(":", 1)[-1], ())
    # Two processes that end alike: a drawing that names only the end says nothing.
    return label if label in likely else likely[0] if len(likely) == 1 else None


def _reached(node: str, ends: Mapping[str, Sequence[str]], full: Mapping[str, str | None]) -> list[str]:
    found, seen, open_nodes = [], {node}, list(ends.get(node, ()))
    while open_nodes:
        above = open_nodes.pop()
        if above in seen:
            continue
        seen.add(above)
        name = full.get(above)
        if name is None:
            open_nodes += ends.get(above, ())
        else:
            found.append(name)
    # Sorted: the walk's order depends on that of lines in the file.
    return sorted(found)


def _refuse_cycles(dag: Path, parents: Mapping[str, Sequence[str]]) -> None:
    # Only processes of the trace: others never ran and wait for nothing.
    left = {name: set(above) & set(parents) for name, above in parents.items()}
    while left:
        free = [name for name, above in left.items() if not above]
        if not free:
            raise InvalidInput(str(dag), f"its processes are in a cycle: {', '.join(sorted(left)[:8])}")
        left = {name: above - set(free) for name, above in left.items() if name not in free}

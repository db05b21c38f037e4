"""What a submission must keep before any of it is taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wattflow.model.errors import Problem
from wattflow.runtime.messages import Task


def problems(new: Sequence[Task], known: set[str]) -> Iterable[Problem]:
    """What is wrong with new tasks; ``known`` holds the keys before them and grows."""
    for task in new:
        where = f"task {task.key}"
        if task.key in known:
            yield Problem(where, "the key appears twice")
        for key in {*task.parents, *task.results} - known:
            yield Problem(where, f"waits for {key!r}, which is not in the workflow before it")
        if (task.command is None) == (task.function is None):
            yield Problem(where, "needs either a command or a function")
        if task.function is not None and (task.python is None or task.call is None):
            yield Problem(where, "a function needs its call and the Python version that made it")
        if task.command is not None and not task.command:
            yield Problem(where, "the command is empty")
        for variant in task.variants:
            if variant.gpu > 1 and variant.gpu != int(variant.gpu):
                yield Problem(
                    f"{where}, variant {variant.name}", f"gpu is a share up to 1 or whole GPUs, not {variant.gpu}"
                )
            if variant.gpu and variant.fpga:
                yield Problem(
                    f"{where}, variant {variant.name}", "one variant runs on a GPU or on an FPGA, not on both"
                )
        known.add(task.key)

"""The shapes of our DAG families. Each is a function of the number of tasks that returns exactly that many steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wattflow.model.errors import InvalidInput, unknown_name
from wattflow.model.units import GIB
from wattflow.model.workflow import Variant


@dataclass(frozen=True, slots=True)
class Step:
    """A task to be: its function, parents (earlier steps), and its runtime relative to the family's mean."""

    function: str
    parents: tuple[int, ...] = ()
    weight: float = 1.0


Family = Callable[[int, np.random.Generator], list[Step]]


def bag(count: int, rng: np.random.Generator) -> list[Step]:
    """Independent tasks."""
    return [Step("work") for _ in range(count)]


def chain(count: int, rng: np.random.Generator) -> list[Step]:
    """Each task waits for the one before."""
    return [Step("work", (i - 1,) if i else ()) for i in range(count)]


def fork_join(count: int, rng: np.random.Generator) -> list[Step]:
    """A fork, as many branches as there is room for, and a join."""
    steps = [Step("fork", (), 0.5)]
    steps += [Step("branch", (0,)) for _ in range(count - 2)]
    return [*steps, Step("join", tuple(range(1, count - 1)), 0.5)]


def map_reduce(count: int, rng: np.random.Generator) -> list[Step]:
    """Split, maps, reducers that each read every map (one per four maps), and a merge."""
    reducers = max(1, (count - 2) // 5)
    maps = count - 2 - reducers
    steps = [Step("split", (), 0.3)]
    steps += [Step("map", (0,)) for _ in range(maps)]
    steps += [Step("reduce", tuple(range(1, maps + 1)), 1.5) for _ in range(reducers)]
    return [*steps, Step("merge", tuple(range(maps + 1, count - 1)), 0.5)]


def in_tree(count: int, rng: np.random.Generator) -> list[Step]:
    """A binary tree whose leaves come first and whose root comes last: the task i of the heap joins 2i+1 and 2i+2."""
    steps = []
    # From the heap's last place to its root, so that children, which are parents here, come first.
    for place in range(count - 1, -1, -1):
        below = [child for child in (2 * place + 1, 2 * place + 2) if child < count]
        parents = tuple(sorted(count - 1 - child for child in below))
        steps.append(Step("join" if parents else "leaf", parents, 0.7 if parents else 1.0))
    return steps


def montage(count: int, rng: np.random.Generator) -> list[Step]:
    """Montage-like mosaic: project, difference of neighbours, one fit, correct each image, add, shrink, picture."""
    room = count - 6
    images = max(2, room // 4)
    # More images until the differences that are left are no more than there are pairs; each image costs
    # two tasks (project, correct).
    while room - 2 * images > images * (images - 1) // 2 and room - 2 * (images + 1) >= 1:
        images += 1
    # Neighbours first: images that overlap are those next to each other.
    pairs = [(i, i + gap) for gap in range(1, images) for i in range(images - gap)][: room - 2 * images]
    steps = [Step("project", (), 1.5) for _ in range(images)]
    steps += [Step("difference", pair, 0.3) for pair in pairs]
    steps.append(Step("concat", tuple(range(images, images + len(pairs))), 0.5))
    steps.append(Step("model", (len(steps) - 1,), 2.0))
    model = len(steps) - 1
    steps += [Step("correct", (i, model), 0.5) for i in range(images)]
    steps.append(Step("index", tuple(range(model + 1, model + 1 + images)), 0.2))
    index = len(steps) - 1
    steps.append(Step("add", (*range(model + 1, model + 1 + images), index), 3.0))
    add = len(steps) - 1
    # What is left over becomes shrinks, so that the number of tasks is exact.
    steps += [Step("shrink", (add,), 0.4) for _ in range(count - len(steps) - 1)]
    return [*steps, Step("picture", tuple(range(add + 1, len(steps))), 0.3)]


def layered(count: int, rng: np.random.Generator) -> list[Step]:
    """Random layers of about √n tasks; each task has one to three parents in the layer above."""
    width = max(1, round(count**0.5))
    steps: list[Step] = []
    above: list[int] = []
    while len(steps) < count:
        size = min(count - len(steps), int(rng.integers(max(1, width // 2), width + width // 2 + 1)))
        layer = range(len(steps), len(steps) + size)
        for _ in layer:
            # The first layer has nobody above.
            wanted = min(len(above), int(rng.integers(1, 4)))
            parents = sorted(rng.choice(above, wanted, replace=False).tolist()) if wanted else []
            steps.append(Step(f"stage{len(steps) % 4}", tuple(parents)))
        above = list(layer)
    return steps


def mixed(count: int, rng: np.random.Generator) -> list[Step]:
    """Streams of filter → align → infer over samples, then train and a summary: CPU, FPGA and GPU work in one DAG."""
    samples = (count - 2) // 3
    steps: list[Step] = []
    for _ in range(samples):
        first = len(steps)
        steps += [Step("filter", (), 0.6), Step("align", (first,), 1.5), Step("infer", (first + 1,), 2.0)]
    steps += [Step("filter", (), 0.6) for _ in range(count - 2 - 3 * samples)]
    # Filters that did not fill a sample go straight into training.
    ends = tuple(i for i in range(len(steps)) if steps[i].function == "infer" or i >= 3 * samples)
    steps.append(Step("train", ends, 5.0))
    return [*steps, Step("summary", (len(steps) - 1,), 0.4)]


FAMILIES: dict[str, Family] = {
    "bag": bag,
    "chain": chain,
    "fork-join": fork_join,
    "map-reduce": map_reduce,
    "in-tree": in_tree,
    "montage": montage,
    "layered": layered,
    "mixed": mixed,
}

# Fewer would leave a stage of the family empty.
SMALLEST = {
    "bag": 1,
    "chain": 1,
    "fork-join": 3,
    "map-reduce": 4,
    "in-tree": 1,
    "montage": 11,
    "layered": 1,
    "mixed": 5,
}

VARIANTS: dict[str, tuple[Variant, ...]] = {
    "align": (
        Variant("cpu", cores=4.0, memory_bytes=4 * GIB),
        Variant("fpga", cores=1.0, memory_bytes=2 * GIB, device="fpga", devices=1, runtime_factor=0.35),
    ),
    "infer": (
        Variant("cpu", cores=4.0, memory_bytes=4 * GIB),
        Variant("gpu-quarter", cores=1.0, memory_bytes=2 * GIB, device="gpu", devices=1, device_share=0.25,
                device_memory_bytes=4 * GIB, runtime_factor=0.4),
        Variant("gpu-half", cores=1.0, memory_bytes=2 * GIB, device="gpu", devices=1, device_share=0.5,
                device_memory_bytes=4 * GIB, runtime_factor=0.25),
    ),
    "train": (
        Variant("cpu", cores=8.0, memory_bytes=8 * GIB),
        Variant("gpu", cores=2.0, memory_bytes=4 * GIB, device="gpu", devices=1, device_memory_bytes=8 * GIB,
                runtime_factor=0.1),
    ),
}  # fmt: skip
"""Ways to run the functions of ``mixed`` that can use a device; every other function has one CPU variant."""


def steps_of(family: str, count: int, rng: np.random.Generator) -> list[Step]:
    """``count`` steps of the family, parents before children."""
    if family not in FAMILIES:
        raise unknown_name("workflow family", family, FAMILIES)
    if count < SMALLEST[family]:
        raise InvalidInput(f"family {family}", f"needs at least {SMALLEST[family]} tasks, not {count}")
    return FAMILIES[family](count, rng)

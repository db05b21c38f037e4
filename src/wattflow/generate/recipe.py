"""A recipe: everything that determines a generated workload, except the seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wattflow.generate.laws import Arrivals, Law
from wattflow.model.errors import InvalidInput, Problem, unknown_name
from wattflow.model.units import GIB, MB, duration_s, size_bytes
from wattflow.model.workflow import File, Function, Task, Variant, Workflow
from wattflow.model.workload import Workload


@dataclass(frozen=True, slots=True)
class RecipeStep:
    """A task to be: its function, parents (earlier steps), and its runtime relative to the family's mean."""

    function: str
    parents: tuple[int, ...] = ()
    weight: float = 1.0


Family = Callable[[int, np.random.Generator], list[RecipeStep]]


def bag(count: int, rng: np.random.Generator) -> list[RecipeStep]:
    """Independent tasks."""
    return [RecipeStep("work") for _ in range(count)]


def chain(count: int, rng: np.random.Generator) -> list[RecipeStep]:
    """Each task waits for the one before."""
    return [RecipeStep("work", (i - 1,) if i else ()) for i in range(count)]


def fork_join(count: int, rng: np.random.Generator) -> list[RecipeStep]:
    """A fork, as many branches as there is room for, and a join."""
    steps = [RecipeStep("fork", (), 0.5)]
    steps += [RecipeStep("branch", (0,)) for _ in range(count - 2)]
    return [*steps, RecipeStep("join", tuple(range(1, count - 1)), 0.5)]


def map_reduce(count: int, rng: np.random.Generator) -> list[RecipeStep]:
    """Split, maps, reducers that each read every map (one per four maps), and a merge."""
    reducers = max(1, (count - 2) // 5)
    maps = count - 2 - reducers
    steps = [RecipeStep("split", (), 0.3)]
    steps += [RecipeStep("map", (0,)) for _ in range(maps)]
    steps += [RecipeStep("reduce", tuple(range(1, maps + 1)), 1.5) for _ in range(reducers)]
    return [*steps, RecipeStep("merge", tuple(range(maps + 1, count - 1)), 0.5)]


def in_tree(count: int, rng: np.random.Generator) -> list[RecipeStep]:
    """A binary tree whose leaves come first and whose root comes last: the task i of the heap joins 2i+1 and 2i+2."""
    steps = []
    # From the heap's last place to its root, so that children, which are parents here, come first.
    for place in range(count - 1, -1, -1):
        below = [child for child in (2 * place + 1, 2 * place + 2) if child < count]
        parents = tuple(sorted(count - 1 - child for child in below))
        steps.append(RecipeStep("join" if parents else "leaf", parents, 0.7 if parents else 1.0))
    return steps


def montage(count: int, rng: np.random.Generator) -> list[RecipeStep]:
    """Montage-like mosaic: project, difference of neighbours, one fit, correct each image, add, shrink, picture."""
    room = count - 6
    images = max(2, room // 4)
    # More images until the differences that are left are no more than there are pairs; each image costs
    # two tasks (project, correct).
    while room - 2 * images > images * (images - 1) // 2 and room - 2 * (images + 1) >= 1:
        images += 1
    # Neighbours first: images that overlap are those next to each other.
    pairs = [(i, i + gap) for gap in range(1, images) for i in range(images - gap)][: room - 2 * images]
    steps = [RecipeStep("project", (), 1.5) for _ in range(images)]
    steps += [RecipeStep("difference", pair, 0.3) for pair in pairs]
    steps.append(RecipeStep("concat", tuple(range(images, images + len(pairs))), 0.5))
    steps.append(RecipeStep("model", (len(steps) - 1,), 2.0))
    model = len(steps) - 1
    steps += [RecipeStep("correct", (i, model), 0.5) for i in range(images)]
    steps.append(RecipeStep("index", tuple(range(model + 1, model + 1 + images)), 0.2))
    index = len(steps) - 1
    steps.append(RecipeStep("add", (*range(model + 1, model + 1 + images), index), 3.0))
    add = len(steps) - 1
    # What is left over becomes shrinks, so that the number of tasks is exact.
    steps += [RecipeStep("shrink", (add,), 0.4) for _ in range(count - len(steps) - 1)]
    return [*steps, RecipeStep("picture", tuple(range(add + 1, len(steps))), 0.3)]


def layered(count: int, rng: np.random.Generator) -> list[RecipeStep]:
    """Random layers of about √n tasks; each task has one to three parents in the layer above."""
    width = max(1, round(count**0.5))
    steps: list[RecipeStep] = []
    above: list[int] = []
    while len(steps) < count:
        size = min(count - len(steps), int(rng.integers(max(1, width // 2), width + width // 2 + 1)))
        layer = range(len(steps), len(steps) + size)
        for _ in layer:
            # The first layer has nobody above.
            wanted = min(len(above), int(rng.integers(1, 4)))
            parents = sorted(rng.choice(above, wanted, replace=False).tolist()) if wanted else []
            steps.append(RecipeStep(f"stage{len(steps) % 4}", tuple(parents)))
        above = list(layer)
    return steps


def mixed(count: int, rng: np.random.Generator) -> list[RecipeStep]:
    """Streams of filter → align → infer over samples, then train and a summary: CPU, FPGA and GPU work in one DAG."""
    samples = (count - 2) // 3
    steps: list[RecipeStep] = []
    for _ in range(samples):
        first = len(steps)
        steps += [
            RecipeStep("filter", (), 0.6),
            RecipeStep("align", (first,), 1.5),
            RecipeStep("infer", (first + 1,), 2.0),
        ]
    steps += [RecipeStep("filter", (), 0.6) for _ in range(count - 2 - 3 * samples)]
    # Filters that did not fill a sample go straight into training.
    ends = tuple(i for i in range(len(steps)) if steps[i].function == "infer" or i >= 3 * samples)
    steps.append(RecipeStep("train", ends, 5.0))
    return [*steps, RecipeStep("summary", (len(steps) - 1,), 0.4)]


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


def steps_of(family: str, count: int, rng: np.random.Generator) -> list[RecipeStep]:
    """``count`` steps of the family, parents before children."""
    if family not in FAMILIES:
        raise unknown_name("workflow family", family, FAMILIES)
    if count < SMALLEST[family]:
        raise InvalidInput(f"family {family}", f"needs at least {SMALLEST[family]} tasks, not {count}")
    return FAMILIES[family](count, rng)


MOST_TASKS = 5_000_000
"""Tasks of a generated workload: each is drawn as an object (about 2 KB) before it becomes a row."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One generated workload per seed; the same seed gives the same bytes.

    Attributes:
        family: A name of ``FAMILIES``.
        tasks: Tasks of each workflow.
        workflows: How many workflows arrive.
        runtime: Seconds of a task of weight 1.
        file: Bytes of each task's output and of each source's input.
        arrivals: When the workflows are submitted.
        cores, memory_bytes: Request of every task that has no variants of its own.
        cold_start_s: Time to make a container of each function.
        slack: Deadline of a workflow as a multiple of its critical path; None means no deadline.
    """

    family: str = "montage"
    tasks: int = 100
    workflows: int = 1
    runtime: Law = Law("lognormal", 10.0, 1.0)
    file: Law = Law("lognormal", 20.0 * MB, 1.0)
    arrivals: Arrivals = Arrivals()
    cores: float = 1.0
    memory_bytes: int = GIB
    cold_start_s: float = 0.0
    slack: float | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise unknown_name("workflow family", self.family, FAMILIES)
        problems = []
        if self.tasks < SMALLEST[self.family]:
            problems.append(Problem("tasks", f"{self.family} needs at least {SMALLEST[self.family]}, not {self.tasks}"))
        if self.workflows < 1:
            problems.append(Problem("workflows", f"must be at least 1, not {self.workflows}"))
        if self.tasks * self.workflows > MOST_TASKS:
            text = f"{self.tasks:,} × {self.workflows:,} are more than the {MOST_TASKS:,} that fit into memory"
            problems.append(Problem("tasks × workflows", text))
        if self.cores <= 0 or self.memory_bytes < 0 or self.cold_start_s < 0:
            problems.append(Problem("cores, memory_bytes, cold_start_s", "must not be negative, and cores above 0"))
        if self.slack is not None and self.slack <= 0:
            problems.append(Problem("slack", f"must be above 0, not {self.slack}"))
        if problems:
            raise InvalidInput(f"recipe {self.title}", problems)

    @property
    def title(self) -> str:
        return self.name or self.family

    def draw(self, seed: int = 0) -> Workload:
        """Draw the workload of this seed."""
        return Workload.of(self.documents(seed), self.title)

    def documents(self, seed: int = 0) -> tuple[Workflow, ...]:
        """Draw the workflows of this seed, in order of submission."""
        # The second number keeps streams of recipes, benchmarks and jitter apart.
        rng = np.random.default_rng([seed, 0x57F])
        # Submission times first, then each workflow: more tasks in one do not move the others' arrivals.
        submit_s = self.arrivals.draw(rng, self.workflows)
        width = len(str(self.workflows - 1))
        names = [f"{self.title}-{i:0{width}d}" if self.workflows > 1 else self.title for i in range(self.workflows)]
        return tuple(self._document(name, at, rng) for name, at in zip(names, submit_s.tolist(), strict=True))

    def _document(self, name: str, submit_s: float, rng: np.random.Generator) -> Workflow:
        steps = steps_of(self.family, self.tasks, rng)
        weight = np.array([step.weight for step in steps])
        runtime_s = (self.runtime.draw(rng, len(steps)) * weight).tolist()
        out_bytes = self.file.draw(rng, len(steps)).astype(np.int64).tolist()
        # Drawn for every task, though only sources read one: the number of draws then depends on the tasks
        # alone.
        in_bytes = self.file.draw(rng, len(steps)).astype(np.int64).tolist()
        ids = _ids(steps)
        tasks, files = [], []
        for i, step in enumerate(steps):
            files.append(File(f"{ids[i]}.out", out_bytes[i]))
            inputs = tuple(f"{ids[parent]}.out" for parent in step.parents)
            if not inputs:
                inputs = (f"{ids[i]}.in",)
                files.append(File(inputs[0], in_bytes[i]))
            tasks.append(
                Task(
                    id=ids[i],
                    name=ids[i],
                    function=step.function,
                    runtime_s=runtime_s[i],
                    inputs=inputs,
                    variants=self._variants(step.function),
                    parents=tuple(ids[parent] for parent in step.parents),
                    outputs=(f"{ids[i]}.out",),
                )
            )
        names = dict.fromkeys(step.function for step in steps)
        return Workflow(
            name=name,
            tasks=tuple(tasks),
            files=tuple(files),
            functions=tuple(Function(function, cold_start_s=self.cold_start_s) for function in names),
            submit_s=submit_s,
            deadline_s=None if self.slack is None else self.slack * _critical_path_s(steps, runtime_s),
            description=f"generated: {self.family}, {self.tasks} tasks",
        )

    def _variants(self, function: str) -> tuple[Variant, ...]:
        if self.family == "mixed" and function in VARIANTS:
            return VARIANTS[function]
        return (Variant("cpu", cores=self.cores, memory_bytes=self.memory_bytes),)

    @classmethod
    def parse(cls, text: str) -> Recipe:
        """Read ``family:key=value,…``, as in ``montage:tasks=200,workflows=10,arrivals=poisson,rate=0.05``."""
        family, _, rest = text.partition(":")
        problems: list[Problem] = []
        parts: dict[str, dict[str, Any]] = {"": {"family": family}, "runtime": {}, "file": {}, "arrivals": {}}
        for item in filter(None, (piece.strip() for piece in rest.split(","))):
            key, equals, value = item.partition("=")
            if not equals or key not in _KEYS:
                problems.append(Problem(item, f"write key=value with one of the keys {', '.join(_KEYS)}"))
                continue
            part, attribute, read, _ = _KEYS[key]
            try:
                parts[part][attribute] = read(value)
            except ValueError as error:
                problems.append(Problem(item, _misread(key, value, error)))
        whole = parts.pop("")
        # Each part is checked by itself, so that all mistakes of a line are told at once.
        for part, given in parts.items():
            default: Any = cls.__dataclass_fields__[part].default
            # Laws differ in what a shape means: that of the default law must not be kept.
            if given.get("law") in USUAL_SHAPE:
                given.setdefault("shape", USUAL_SHAPE[given["law"]])
            try:
                whole[part] = replace(default, **given)
            except InvalidInput as error:
                problems += [Problem(part, problem.what) for problem in error.problems]
        try:
            recipe = cls(**whole)
        except InvalidInput as error:
            problems += error.problems
        if problems:
            raise InvalidInput(f"generated workload {text!r}", problems)
        return recipe


def _ids(steps: list[RecipeStep]) -> list[str]:
    seen: dict[str, int] = {}
    ids = []
    for step in steps:
        number = seen[step.function] = seen.get(step.function, -1) + 1
        ids.append(f"{step.function}-{number}")
    return ids


def _critical_path_s(steps: list[RecipeStep], runtime_s: list[float]) -> float:
    end_s: list[float] = []
    for step, runtime in zip(steps, runtime_s, strict=True):
        # Parents come before children in a list of steps.
        end_s.append(runtime + max((end_s[parent] for parent in step.parents), default=0.0))
    return max(end_s)


def _misread(key: str, value: str, error: ValueError) -> str:
    """Say why a value cannot be read, and what to write."""
    number, colon, rest = value.partition(":")
    # "tasks=100:mean=5" is the usual slip.
    if colon and "=" in rest:
        return f"keys have commas between, not colons: write {key}={number},{rest.replace(':', ',')}"
    return f"{value!r} is no whole number" if _KEYS[key][2] is int else str(error)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


_KEYS: dict[str, tuple[str, str, Callable[[str], object], str]] = {
    "tasks": ("", "tasks", int, "tasks of each workflow"),
    "workflows": ("", "workflows", int, "how many workflows arrive"),
    "runtime": ("runtime", "law", str, "distribution of runtimes"),
    "mean": ("runtime", "mean", duration_s, "mean runtime, as in 90s or 5m"),
    "shape": ("runtime", "shape", _finite, "shape of the runtime distribution"),
    "file": ("file", "law", str, "distribution of file sizes"),
    "file-mean": ("file", "mean", lambda text: float(size_bytes(text)), "mean file size, as in 20MB"),
    "file-shape": ("file", "shape", _finite, "shape of the file size distribution"),
    "arrivals": ("arrivals", "kind", str, "when workflows are submitted"),
    "rate": ("arrivals", "rate_per_s", _finite, "workflows a second"),
    "amplitude": ("arrivals", "amplitude", _finite, "swing of diurnal arrivals, 0 … 1"),
    "period": ("arrivals", "period_s", duration_s, "cycle of diurnal arrivals, as in 24h"),
    "cv": ("arrivals", "cv", _finite, "variation of the gaps of bursty arrivals"),
    "cores": ("", "cores", _finite, "cores of each task without device variants"),
    "memory": ("", "memory_bytes", size_bytes, "memory of each such task, as in 2GiB"),
    "cold-start": ("", "cold_start_s", duration_s, "time to make a container, as in 500ms"),
    "slack": ("", "slack", _finite, "deadline as a multiple of the critical path"),
    "name": ("", "name", str, "name of the workload"),
}
"""Where a key's value goes, how it is read, and what it means."""
KEYS_ABOUT = {key: about for key, (_, _, _, about) in _KEYS.items()}
"""Keys that may be written after the colon of a generated workload."""

USUAL_SHAPE = {"lognormal": 1.0, "pareto": 2.0, "weibull": 0.7}
"""Shape of a law named in a line without one."""

"""A recipe: everything that determines a generated workload, except the seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wattflow.generate.families import FAMILIES, SMALLEST, VARIANTS, Step, steps_of
from wattflow.generate.laws import Arrivals, Law
from wattflow.model.errors import InvalidInput, Problem, unknown_name
from wattflow.model.units import GIB, MB, duration_s, size_bytes
from wattflow.model.workflow import File, Function, Task, Variant, Workflow
from wattflow.model.workload import Workload

MOST_TASKS = 5_000_000
"""Tasks of a generated workload: each is drawn as an object (about 2 KB) before it becomes a row."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One generated workload per seed; the same seed gives the same bytes.

    Attributes:
        family: A name of ``families.FAMILIES``.
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


def _ids(steps: list[Step]) -> list[str]:
    seen: dict[str, int] = {}
    ids = []
    for step in steps:
        number = seen[step.function] = seen.get(step.function, -1) + 1
        ids.append(f"{step.function}-{number}")
    return ids


def _critical_path_s(steps: list[Step], runtime_s: list[float]) -> float:
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

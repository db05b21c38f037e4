"""One training set's knowledge of runtimes: backbone, process over its residual, and the plain members beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattflow.predict import backbone as lines
from wattflow.predict import kriging, plain
from wattflow.predict.observations import Benchmarks, Floats, Ints, Observations, Texts

# `serving._log_seconds` adds the members up in this order, and falls back as `_WIDER` says: change
# both together.
MEMBERS = ("process", "backbone", *plain.NAMES)
LARGE = 5.0
"""A size within this factor of the largest seen, or above it, is one of the largest."""
BEYOND = 1.5
"""A size this many times outside the range seen counts as beyond it."""
# In this order: a member that falls back on another must come after it was filled itself.
_WIDER = (
    ("line", "median"),
    ("median here", "process"),
    ("last here", "process"),
    ("line here", "median here"),
    ("least squares here", "line here"),
    ("same input", "median"),
    ("same input here", "same input"),
    ("same input, steadied", "median"),
)
_NEIGHBOURS, _SHARPNESS = 3, 4.0
INPUTS = ("new input", "known input", "known input here")
"""Tells whether the task ran on the input before, and on the same machine."""
# Position i + 3 is regime i at the largest sizes; `Trainer.weigh` and `serving` count on it.
REGIMES = (*INPUTS, *(f"{name}, largest sizes" for name in INPUTS))


@dataclass(frozen=True, slots=True)
class Names:
    """Tasks, machines, sources and input data by number."""

    tasks: tuple[str, ...]
    machines: tuple[str, ...]
    sources: tuple[str, ...]
    data: tuple[str, ...]

    @classmethod
    def of(cls, rows: Observations, benchmarks: Benchmarks) -> Names:
        machines = sorted(set(rows.machine.tolist()) | set(benchmarks))
        data = sorted(set(rows.data.tolist()) - {""})
        return cls(
            tuple(np.unique(rows.task).tolist()), tuple(machines), tuple(np.unique(rows.source).tolist()), tuple(data)
        )


def numbers(texts: Texts, names: Sequence[str]) -> Ints:
    """Return the position of each text among the names; −1 where it is not one."""
    position = {name: i for i, name in enumerate(names)}
    return np.array([position.get(text, -1) for text in texts.tolist()], np.int64)


@dataclass(frozen=True, slots=True)
class Rows:
    """Observations as numbers."""

    task: Ints
    machine: Ints
    size: Floats
    data: Ints

    def take(self, rows: Ints) -> Rows:
        return Rows(self.task[rows], self.machine[rows], self.size[rows], self.data[rows])

    @property
    def places(self) -> kriging.Coordinates:
        size = np.where(np.isfinite(self.size), self.size, 0.0)
        # A trifle added, since sizes may be 0.
        return kriging.Coordinates(self.machine, np.log(size / lines.SIZE_UNIT + 1e-6), self.data)


@dataclass(frozen=True, slots=True)
class Core:
    """Backbone with all offsets filled, the process over its residual, and plain members.

    ``ran`` marks the pairs of task and machine that were really seen; its last column is a machine nobody knows.
    """

    backbone: lines.Backbone
    ran: Ints
    process: kriging.Kriging
    plain: plain.Plain

    def members(self, rows: Rows) -> Floats:
        """Return the natural log of seconds by every member, [row, member]; NaN for an unknown task.

        A member that does not know a row answers with a wider one: lines and inputs with the median, members by machine
        with the process where the task never ran on that machine.
        """
        result = np.full((len(rows.task), len(MEMBERS)), np.nan)
        known = np.flatnonzero((rows.task >= 0) & np.isfinite(self.backbone.slope[rows.task]))
        some = rows.take(known)
        # An index that exists: the last column stands for any machine that nobody knows.
        some = replace(some, machine=np.where(some.machine < 0, self.backbone.offset.shape[1] - 1, some.machine))
        line = self.backbone.predict(some.task, some.machine, some.size)
        smooth = line + self.process.predict(some.task, some.places)
        others = self.plain.predict(some.task, some.machine, some.size, some.data)
        found = np.column_stack([smooth, line, others])
        for name, wider in _WIDER:
            column, instead = MEMBERS.index(name), found[:, MEMBERS.index(wider)]
            found[:, column] = np.where(np.isfinite(found[:, column]), found[:, column], instead)
        result[known] = found
        return result

    def regime(self, rows: Rows) -> Ints:
        """Classify each row into `REGIMES`: whether the task ran on this input, whether its size is a large one."""
        same = np.isfinite(self.plain.data.at(self.plain.data_key(rows.task, rows.data)))
        here = np.isfinite(self.plain.here.at(self.plain.here_key(rows.task, rows.data, rows.machine)))
        # Above the largest seen over five: "large" begins below the largest.
        large = self._outside(rows)[0] > -np.log(LARGE)
        return np.asarray(same.astype(np.int64) + here + len(INPUTS) * large, np.int64)

    def stretch(self, rows: Rows) -> Floats:
        """Return how far each size lies outside what the task was seen with, in natural logs; 0 inside or unknown."""
        return np.asarray(np.maximum(np.max(self._outside(rows), axis=0), 0.0))

    def _outside(self, rows: Rows) -> Floats:
        """Return [above, below]: logs of size over the largest and of the smallest over it; −∞ where size is moot."""
        task = np.maximum(rows.task, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            size = np.log(np.maximum(rows.size, 1.0))
            ends = np.array(
                [
                    size - np.log(np.maximum(self.backbone.highest[task], 1.0)),
                    np.log(np.maximum(self.backbone.lowest[task], 1.0)) - size,
                ]
            )
        # Where sizes do not move a task, being outside of them says nothing.
        matters = (self.plain.spread[task] > 0) & (rows.task >= 0) & np.isfinite(size)
        return np.where(matters, ends, -np.inf)

    def resemble(self, rows: Rows, likeness: Floats) -> Floats:
        """Estimate log seconds of unknown tasks: what the known tasks most like them by name would take.

        ``likeness`` is [row, known task]; tasks this core never fitted do not count.
        """
        return resemble(self.backbone, rows, likeness)


def resemble(backbone: lines.Backbone, rows: Rows, likeness: Floats) -> Floats:
    """See `Core.resemble`; the backbone alone suffices."""
    fitted = np.isfinite(backbone.slope)
    # A floor, so that tasks without any likeness still share a little; the power makes the nearest
    # count most.
    weight = np.where(fitted[None, :], np.maximum(likeness, 1e-3) ** _SHARPNESS, 0.0)
    total, mass = np.zeros(len(rows.task)), np.zeros(len(rows.task))
    # Stable: equal likeness goes by the order of tasks.
    nearest = np.argsort(-weight, axis=1, kind="stable")[:, :_NEIGHBOURS]
    machine = np.where(rows.machine < 0, backbone.offset.shape[1] - 1, rows.machine)
    for rank in range(nearest.shape[1]):
        task = nearest[:, rank]
        found = backbone.predict(task, machine, rows.size)
        share = np.where(np.isfinite(found), weight[np.arange(len(task)), task], 0.0)
        total += share * np.where(np.isfinite(found), found, 0.0)
        mass += share
    # Never a division by zero; the result is dropped there anyway.
    return np.where(mass > 0, total / np.maximum(mass, 1e-300), np.nan)

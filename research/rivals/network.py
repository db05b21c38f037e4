"""Dense networks in plain numpy: forwards, backwards, Adam; and softmax over rows of unequal number."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Whole = NDArray[np.int64]


class Net:
    """Layers of weights and biases with max(0, x) between them; the last layer is linear and starts small."""

    def __init__(self, layers: Sequence[tuple[Floats, Floats]]) -> None:
        self.layers = [(w.astype(np.float32), b.astype(np.float32)) for w, b in layers]
        self._inside: list[Floats] = []
        self._first = [(np.zeros_like(w), np.zeros_like(b)) for w, b in self.layers]
        self._second = [(np.zeros_like(w), np.zeros_like(b)) for w, b in self.layers]
        self._steps = 0

    @classmethod
    def start(cls, sizes: Sequence[int], rng: np.random.Generator) -> Net:
        """Random weights, by the number of inputs of each layer."""
        made: list[tuple[Any, Any]] = []
        for i, (before, after) in enumerate(itertools.pairwise(sizes)):
            scale = 0.01 if i == len(sizes) - 2 else np.sqrt(2.0 / before)
            made.append((rng.normal(0.0, scale, (before, after)), np.zeros(after)))
        return cls(made)

    def forward(self, x: Floats) -> Floats:
        """Outputs of many rows; what `backward` needs is kept."""
        self._inside = [x]
        for i, (w, b) in enumerate(self.layers):
            x = x @ w + b
            if i < len(self.layers) - 1:
                x = np.maximum(x, 0.0)
                self._inside.append(x)
        return x

    def descend(self, slope: Floats, rate: float, most: float = 0.5) -> None:
        """One step of Adam against the slope of a loss by the outputs of the last `forward`."""
        slopes: list[tuple[Floats, Floats]] = []
        for i in reversed(range(len(self.layers))):
            slopes.append((self._inside[i].T @ slope, slope.sum(0)))
            if i > 0:
                slope = (slope @ self.layers[i][0].T) * (self._inside[i] > 0.0)
        slopes.reverse()
        size = float(np.sqrt(sum(float((part**2).sum()) for pair in slopes for part in pair)))
        scale = min(1.0, most / max(1e-12, size))
        self._steps += 1
        rate *= np.sqrt(1.0 - 0.999**self._steps) / (1.0 - 0.9**self._steps)
        for layer, pair, first, second in zip(self.layers, slopes, self._first, self._second, strict=True):
            for value, part, m, v in zip(layer, pair, first, second, strict=True):
                m += 0.1 * (scale * part - m)
                v += 0.001 * ((scale * part) ** 2 - v)
                value -= (rate * m / (np.sqrt(v) + 1e-8)).astype(np.float32)

    def copy(self) -> Net:
        """The same weights, apart."""
        return Net([(w.copy(), b.copy()) for w, b in self.layers])

    def arrays(self, name: str) -> dict[str, Any]:
        """For a file."""
        return {f"{name}_{kind}{i}": part for i, pair in enumerate(self.layers) for kind, part in zip("wb", pair)}

    @classmethod
    def of_arrays(cls, name: str, arrays: dict[str, Any]) -> Net:
        """From a file."""
        count = sum(key.startswith(f"{name}_w") for key in arrays)
        return cls([(arrays[f"{name}_w{i}"], arrays[f"{name}_b{i}"]) for i in range(count)])


def sizes_of(starts: Whole, total: int) -> Whole:
    """How many rows each decision has, from where each begins."""
    return np.diff(np.append(starts, total))


def log_softmax(logits: Floats, starts: Whole) -> Floats:
    """Logarithms of the chances of each decision's rows, which lie one after the other."""
    many = sizes_of(starts, len(logits))
    shifted = logits - np.repeat(np.maximum.reduceat(logits, starts), many)
    total = np.add.reduceat(np.exp(shifted), starts)
    return np.asarray(shifted - np.repeat(np.log(total), many), np.float32)


def best(values: Floats, starts: Whole) -> Whole:
    """The first greatest row of each decision, counted within it."""
    most = np.repeat(np.maximum.reduceat(values, starts), sizes_of(starts, len(values)))
    place = np.where(values >= most, np.arange(len(values)), len(values))
    return np.asarray(np.minimum.reduceat(place, starts) - starts, np.int64)


def drawn(log_p: Floats, starts: Whole, rng: np.random.Generator) -> Whole:
    """A row of each decision by its chance (the greatest of logarithms with Gumbel noise)."""
    return best(log_p - np.log(-np.log(rng.uniform(1e-12, 1.0, len(log_p)))).astype(np.float32), starts)

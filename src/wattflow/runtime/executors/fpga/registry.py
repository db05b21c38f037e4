"""Kernels by name: their circuit, their arguments and results as words, and the device assumed for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.model.errors import unknown_name

Words = NDArray[np.uint64]
TAPS = 16


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """A kernel.

    Attributes:
        circuit: ``module:class`` of it, loaded when it is built.
        pack, unpack: Arguments to words, words to the result.
        f_max_hz: Clock assumed for the device; time on it is cycles / f_max.
        watts: Power assumed while it works. Both are assumptions of a mid-size card, so its joules say *modelled*.
        reconfigure_s: To load its bit stream in place of another's.
    """

    name: str
    circuit: str
    pack: Callable[..., Words]
    unpack: Callable[[Words], Any]
    f_max_hz: float = 200e6
    watts: float = 25.0
    reconfigure_s: float = 0.1


def _dot_words(a: Any, b: Any) -> Words:
    left, right = (np.ascontiguousarray(value, np.int16) for value in (a, b))
    if left.shape != right.shape or left.ndim != 1 or not len(left):
        raise ValueError("a dot product needs two vectors of one length, at least 1")
    pairs = np.zeros((len(left) + len(left) % 2, 2), np.int16)
    pairs[: len(left), 0], pairs[: len(left), 1] = left, right
    return pairs.reshape(-1).view(np.uint64)


def _fir_words(samples: Any, taps: Any) -> Words:
    values, coefficients = np.asarray(samples, np.int16), np.asarray(taps, np.int16)
    if values.ndim != 1 or not len(values) or not 1 <= len(coefficients) <= TAPS:
        raise ValueError(f"a filter needs samples and 1 to {TAPS} coefficients")
    padded = np.zeros(TAPS, np.int16)
    padded[: len(coefficients)] = coefficients
    return np.concatenate([padded, values]).view(np.uint16).astype(np.uint64)


def _histogram_words(values: Any) -> Words:
    data = np.asarray(values, np.uint8)
    if data.ndim != 1 or not len(data):
        raise ValueError("a histogram needs a vector of bytes, at least one")
    return data.astype(np.uint64)


_CIRCUITS = "wattflow.runtime.executors.fpga.circuits"
KERNELS = {
    "dot": KernelEntry("dot", f"{_CIRCUITS}:DotProduct", _dot_words, lambda words: int(words.view(np.int64)[-1])),
    "fir": KernelEntry("fir", f"{_CIRCUITS}:Fir", _fir_words, lambda words: words.view(np.int64).copy()),
    "histogram": KernelEntry(
        "histogram", f"{_CIRCUITS}:ByteHistogram", _histogram_words, lambda words: words.astype(np.int64)
    ),
}


def kernel(name: str) -> KernelEntry:
    """A kernel by name."""
    if name not in KERNELS:
        raise unknown_name("FPGA kernel", name, KERNELS)
    return KERNELS[name]

"""FPGA kernels: the circuit's results are numpy's, to the bit."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from wattflow.model.errors import UnknownName
from wattflow.runtime.executors.fpga.call_kernel import KernelCall
from wattflow.runtime.executors.fpga.registry import KERNELS, kernel
from wattflow.runtime.executors.fpga.verilator import program_of, run_words, verilog_of

pytest.importorskip("amaranth")
needs_verilator = pytest.mark.skipif(shutil.which("verilator") is None, reason="needs Verilator (`make tools`)")


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_become_verilog(name: str) -> None:
    text = verilog_of(kernel(name))
    assert "module top(" in text and "o_done" in text


def test_unknown_kernels_and_wrong_arguments_are_told() -> None:
    with pytest.raises(UnknownName, match="did you mean 'fir'"):
        kernel("firr")
    for name, args in (
        ("dot", ([1, 2], [1])),
        ("fir", ([], [1])),
        ("fir", ([1], list(range(17)))),
        ("histogram", ([],)),
    ):
        with pytest.raises(ValueError):
            kernel(name).pack(*args)


@needs_verilator
@pytest.mark.slow
def test_results_are_exact() -> None:
    rng = np.random.default_rng(3)
    low, high = -(2**15), 2**15
    for size in (1, 2, 7, 4096):
        a, b = rng.integers(low, high, (2, size), dtype=np.int16)
        assert KernelCall("dot")(a, b) == int(np.dot(a.astype(np.int64), b.astype(np.int64)))
        taps = rng.integers(low, high, min(size, 16), dtype=np.int16)
        exact = np.convolve(a.astype(np.int64), taps.astype(np.int64))[:size]
        np.testing.assert_array_equal(KernelCall("fir")(a, taps), exact)
        values = rng.integers(0, 256, size, dtype=np.uint8)
        np.testing.assert_array_equal(KernelCall("histogram")(values), np.bincount(values, minlength=256))
    extreme = np.full(1000, low, np.int16)
    assert KernelCall("dot")(extreme, extreme) == 1000 * 2**30


@needs_verilator
@pytest.mark.slow
def test_cycles_are_one_a_word_and_a_few() -> None:
    for name, args, words in (
        ("dot", (np.ones(1000), np.ones(1000)), 500),
        ("fir", (np.ones(1000), np.ones(16)), 1016),
        ("histogram", (np.ones(1000),), 1256),
    ):
        entry = kernel(name)
        _, cycles = run_words(program_of(entry), entry.pack(*args))
        assert words <= cycles <= words + 4

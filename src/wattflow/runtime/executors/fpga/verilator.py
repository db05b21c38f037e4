"""A kernel as a program: Verilog by Amaranth, C++ by Verilator, a small harness that feeds words and counts cycles."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from wattflow.model.errors import MissingExtra, WattflowError
from wattflow.runtime.executors.fpga.registry import KernelEntry, Words

HARNESS = r"""
#include <cstdint>
#include <cstdio>
#include <vector>
#include "Vtop.h"
#include "verilated.h"
// words in on stdin, words out on stdout, cycles on stderr
int main() {
    std::vector<uint64_t> in;
    uint64_t buffer[4096];
    for (size_t n; (n = fread(buffer, 8, 4096, stdin)) > 0;) in.insert(in.end(), buffer, buffer + n);
    VerilatedContext context;
    Vtop top(&context);
    uint64_t cycles = 0;
    auto tick = [&] { top.clk = 0; top.eval(); top.clk = 1; top.eval(); };
    top.rst = 1; tick(); top.rst = 0;
    for (uint64_t at = 0; cycles < in.size() + 1000000; ++cycles) {
        top.i_valid = at < in.size();
        top.i_last = at + 1 == in.size();
        top.i_data = at < in.size() ? in[at] : 0;
        ++at;
        tick();
        if (top.o_valid) { uint64_t word = top.o_data; fwrite(&word, 8, 1, stdout); }
        if (top.o_done) { fprintf(stderr, "%llu\n", (unsigned long long)(cycles + 1)); return 0; }
    }
    return 3;
}
"""


def cache_folder() -> Path:
    """Where programs of kernels are kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "wattflow" / "fpga"


def verilog_of(entry: KernelEntry) -> str:
    """The kernel as Verilog."""
    try:
        from amaranth.back import verilog
    except ImportError:
        raise MissingExtra("FPGA kernels need Amaranth: pip install 'wattflow[fpga]'") from None
    module, name = entry.circuit.split(":")
    circuit = getattr(importlib.import_module(module), name)()
    text: str = verilog.convert(circuit, ports=circuit.ports, name="top", strip_internal_attrs=True)
    return text


def program_of(entry: KernelEntry, folder: Path | None = None) -> Path:
    """The kernel's program, made once for each version of its source."""
    module, _ = entry.circuit.split(":")
    source = importlib.util.find_spec(module)
    assert source is not None and source.origin is not None
    key = hashlib.sha256(Path(source.origin).read_bytes() + HARNESS.encode() + entry.circuit.encode()).hexdigest()[:16]
    place = (folder or cache_folder()) / f"{entry.name}-{key}"
    if place.exists():
        return place
    if shutil.which("verilator") is None:
        raise WattflowError("no verilator here: install Debian's package `verilator` (version 5 or later) and g++")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as name:
        work = Path(name)
        (work / "top.v").write_text(verilog_of(entry))
        (work / "main.cpp").write_text(HARNESS)
        command = ["verilator", "--cc", "--exe", "--build", "-O3", "-Wno-fatal", "-Wno-lint", "--top-module", "top",
                   "-Mdir", "made", "-MAKEFLAGS", "OPT_FAST=-O1 OPT_SLOW=-O0 OPT_GLOBAL=-O0", "top.v",
                   "main.cpp"]  # fmt: skip
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise WattflowError(f"verilator does not take kernel {entry.name}: {done.stderr.strip()[-500:]}")
        (work / "made" / "Vtop").replace(place)
    return place


def run_words(program: Path, words: Words) -> tuple[Words, int]:
    """Words out, and the cycles it took."""
    done = subprocess.run([program], input=words.tobytes(), capture_output=True, check=False)
    if done.returncode != 0:
        raise WattflowError(f"{program.name} did not end: exit code {done.returncode}")
    return np.frombuffer(done.stdout, np.uint64), int(done.stderr.split()[-1])

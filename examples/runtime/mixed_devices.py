"""One workflow on unlike devices. Start a server with a played FPGA and run it:

    wattflow up --fpgas 1
    wattflow run examples/runtime/mixed_devices.py

Signals are made on CPUs. The filter exists for CPUs and as a kernel of the FPGA registry, the spectrum for CPUs and for
a quarter of a GPU; the engine chooses by joules and time among what the nodes have. Where there is no GPU (or no FPGA),
the other variant runs, and the last lines say so.

How much quicker than on a CPU a variant is, its author says (`runtime_factor`). The two numbers below are claims, made
so that every kind of device gets work in a demonstration, and wrong for signals as short as these: on an NVIDIA H200
the GPU's variant took 0.68 s, most of it for opening the device, and a CPU needs milliseconds. The last lines tell what
each variant really took. In work of your own, put there what you measured.
"""

from __future__ import annotations

import numpy as np

import wattflow

CLAIMED_ON_FPGA, CLAIMED_ON_GPU = 0.1, 0.02
"""Seconds of these variants for one second of a CPU: claimed, not measured."""
TAPS = np.array([3, -1, 4, 1, -5, 9, -2, 6], np.int16)


@wattflow.task(cpus=1, estimate="100ms")
def signal(seed: int, length: int = 2000) -> np.ndarray:
    return np.random.default_rng(seed).integers(-1000, 1000, length).astype(np.int16)


@wattflow.task(cpus=1, estimate="2s")
def filtered(samples: np.ndarray, taps: np.ndarray) -> np.ndarray:
    return np.convolve(samples.astype(np.int64), taps.astype(np.int64))[: len(samples)]


filtered.on_fpga("fir", runtime_factor=CLAIMED_ON_FPGA)


@wattflow.task(cpus=1, estimate="2s")
def loudest(samples: np.ndarray) -> int:
    return int(np.argmax(np.abs(np.fft.rfft(samples))[1:])) + 1


@loudest.variant(gpu=0.25, gpu_memory="1GiB", runtime_factor=CLAIMED_ON_GPU)
def loudest_on_gpu(samples: np.ndarray) -> int:
    import torch

    spectrum = torch.fft.rfft(torch.as_tensor(samples, dtype=torch.float64, device="cuda")).abs()
    return int(spectrum[1:].argmax()) + 1


@wattflow.task(cpus=1, estimate="100ms")
def summary(frequencies: list[int]) -> tuple[int, int]:
    return min(frequencies), max(frequencies)


def main() -> None:
    with wattflow.Client(name="mixed-devices") as ex:
        signals = [ex.submit(signal, seed) for seed in range(4)]
        filters = [ex.submit(filtered, one, TAPS) for one in signals]
        spectra = [ex.submit(loudest, one) for one in filters]
        ends = ex.submit(summary, spectra)
        expected = [loudest.function(filtered.function(signal.function(seed), TAPS)) for seed in range(4)]
        right = ends.result() == (min(expected), max(expected))
        print("loudest between", *ends.result(), "as expected" if right else "WRONG")
        for name, task, futures in (("filter", filtered, filters), ("spectrum", loudest, spectra)):
            attempts = [attempt for future in futures for attempt in future.attempts()]
            ways = sorted({attempt["variant_name"] for attempt in attempts})
            joules = sum(future.energy().joules for future in futures)
            print(f"{name}: ran on {', '.join(ways)}, {joules:.3g} J ({futures[0].energy().provenance})")
            for way in ways:
                took_s = [one["ended_s"] - one["started_s"] for one in attempts if one["variant_name"] == way]
                print(f"{name}: {sum(took_s) / len(took_s):.2g} s on {way}")
            for way in sorted({way.name for way in task.ways} - set(ways) - {"cpu"}):
                print(f"{name}: its {way} variant was not used; there is no such device here, or the CPUs were cheaper")


if __name__ == "__main__":
    main()

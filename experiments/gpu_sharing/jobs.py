"""Four GPU programs in one warm worker: Mandelbrot, matrix products, ResNet-18 and ResNet-50 inference.

A job alternates between work on the host (an image batch is made ready in numpy) and kernels on the device, so that it
uses the device for part of the time (its duty) and, by the size of its kernels, part of the multiprocessors. Weights
are random. The worker loads everything once, says it is ready, then answers one JSON line per job.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
import torchvision

NAMES = ("mandelbrot", "matmul", "resnet18", "resnet50")
_ESCAPE = r"""
extern "C" __global__ void escape(int* out, int side, int most) {
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < side * side; at += gridDim.x * blockDim.x) {
        float cr = -2.0f + 2.5f * (at % side) / side, ci = -1.25f + 2.5f * (at / side) / side, r = 0, i = 0;
        int n = 0;
        while (n < most && r * r + i * i < 4.0f) { float t = r * r - i * i + cr; i = 2.0f * r * i + ci; r = t; ++n; }
        out[at] = n;
    }
}
"""
Kernel = Callable[[], None]


def mandelbrot() -> Kernel:
    """A set of 768 points a side on 48 blocks: about a third of the multiprocessors."""
    import cupy

    escape = cupy.RawKernel(_ESCAPE, "escape")
    out = cupy.zeros(768 * 768, cupy.int32)
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)

    def run() -> None:
        with stream:
            escape((48,), (256,), (out, np.int32(768), np.int32(6000)))

    return run


def matmul() -> Kernel:
    """Products of 1,024 × 1,024: about 64 tiles, half of the multiprocessors."""
    a, b = torch.randn(1024, 4096, device="cuda"), torch.randn(4096, 1024, device="cuda")

    def run() -> None:
        for _ in range(24):
            torch.mm(a, b)

    return run


def resnet(build: Callable[..., torch.nn.Module], batch: int) -> Kernel:
    """Inference replayed as one graph, so that launches on the host are not what is measured."""
    model = build(weights=None).eval().cuda()
    images = torch.randn(batch, 3, 224, 224, device="cuda")
    with torch.inference_mode():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(5):
                model(images)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(images)

    def run() -> None:
        for _ in range(4):
            graph.replay()

    return run


MAKERS: dict[str, Callable[[], Kernel]] = {
    "mandelbrot": mandelbrot,
    "matmul": matmul,
    "resnet18": lambda: resnet(torchvision.models.resnet18, 16),
    "resnet50": lambda: resnet(torchvision.models.resnet50, 8),
}


def host_work(rounds: int, image: np.ndarray) -> None:
    """Make an image ready, ``rounds`` times: what a loader does between two batches."""
    for _ in range(rounds):
        scaled = (image.astype(np.float32) / 255.0 - 0.45) / 0.22
        np.ascontiguousarray(scaled.transpose(2, 0, 1))


def run_job(kernel: Kernel, iterations: int, rounds: int, seconds: float | None = None) -> dict[str, float]:
    """Run ``iterations`` (or for ``seconds``): how long, how much of it with the device at work, how many."""
    image = np.full((224, 224, 3), 128, np.uint8)
    began, device_s, done = time.perf_counter(), 0.0, 0
    while done < iterations if seconds is None else time.perf_counter() - began < seconds:
        host_work(rounds, image)
        at = time.perf_counter()
        kernel()
        torch.cuda.synchronize()
        device_s += time.perf_counter() - at
        done += 1
    total = time.perf_counter() - began
    return {"began": began, "seconds": total, "device_s": device_s, "iterations": done}


def main() -> None:
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    wanted = sys.argv[1].split(",") if len(sys.argv) > 1 else NAMES
    kernels = {name: MAKERS[name]() for name in wanted}
    for kernel in kernels.values():
        kernel()
        kernel()
    torch.cuda.synchronize()
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    answer = {"ready": True, "pid": os.getpid(), "multiprocessors": sms}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        ask = json.loads(line)
        found = run_job(kernels[ask["job"]], ask.get("iterations", 0), ask.get("rounds", 0), ask.get("for_s"))
        sys.stdout.write(json.dumps({**ask, **found}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Known loads for a GPU: a small CUDA program built on the spot, run under a share of the device.

Shares are CUDA MPS percentages (``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE``) where its daemon starts. Where it does not, a
load limits itself to that share of the multiprocessors; the profile then says ``sm-limit``, not ``mps``.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wattflow.model.errors import WattflowError

SOURCE = Path(__file__).parents[1] / "data" / "gpu" / "gpu_load.cu"
KERNELS = ("gemm", "fma", "mem")
_log = logging.getLogger(__name__)


class LoadFailed(WattflowError):
    """The load program could not be built or ended with an error."""


@dataclass(frozen=True, slots=True)
class Program:
    """The built load program and the kernels it has."""

    path: Path
    kernels: tuple[str, ...]


def build(folder: Path) -> Program:
    """Compile the load program with nvcc: with cuBLAS where it links, else without its ``gemm``."""
    # The toolkit is often installed without being on the PATH.
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    target = folder / "gpu_load"
    failures = []
    for kernels, flags in _variants():
        command = [nvcc, "-O3", "-arch=native", str(SOURCE), "-o", str(target), *flags]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            failures.append(str(error))
            continue
        if done.returncode == 0:
            return Program(target, kernels)
        failures.append(done.stderr.strip()[-400:])
    raise LoadFailed("the GPU load could not be built: " + "; ".join(failures))


def _variants() -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield ways to build: with the toolkit's cuBLAS, with the one that Python packages carry, without."""
    yield KERNELS, ["-DWITH_CUBLAS", "-lcublas"]
    for place in sys.path:
        # Python packages bring cuBLAS without the toolkit's link names; it is linked by its full name then.
        for library in sorted(Path(place).glob("nvidia/*/lib/libcublas.so.*")):
            folder = library.parent
            link = ["-L", str(folder), f"-l:{library.name}", "-Xlinker", "-rpath", "-Xlinker", str(folder)]
            yield KERNELS, ["-DWITH_CUBLAS", "-I", str(folder.parent / "include"), *link]
    # Without cuBLAS there is no "gemm", the first of the kernels.
    yield KERNELS[1:], []


@dataclass(slots=True)
class Mps:
    """CUDA's multi-process service, started for this process alone.

    ``active`` is False where the daemon did not start; ``reason`` then says why. ``environment`` is the daemon's own,
    on top of this process's: CUDA_VISIBLE_DEVICES makes it the daemon of one GPU.
    """

    folder: Path = Path()
    active: bool = False
    reason: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self) -> Mps:
        # A folder of its own: a daemon that somebody else runs must not be found, let alone stopped.
        self.folder = Path(tempfile.mkdtemp(prefix="wattflow-mps-"))
        try:
            done = subprocess.run(
                [_mps_control(), "-d"], env=self._env(), capture_output=True, text=True, timeout=20, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self.reason = str(error)
            return self
        self.active = done.returncode == 0
        self.reason = (done.stderr or done.stdout).strip()
        return self

    def stop(self) -> None:
        if not self.active:
            return
        try:
            subprocess.run(
                [_mps_control()],
                input="quit\n",
                env=self._env(),
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            _log.warning("the MPS daemon did not stop: %s", error)
        self.active = False

    def client_env(self, share: float) -> Mapping[str, str]:
        """Return the environment of a process that gets ``share`` of the device; plain without a daemon."""
        if not self.active:
            # No daemon, no percentage: the load limits itself (`RunningLoad`).
            return dict(os.environ)
        return self._env() | {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{share * 100:g}"}

    def _env(self) -> dict[str, str]:
        return {
            **os.environ,
            **self.environment,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.folder),
            "CUDA_MPS_LOG_DIRECTORY": str(self.folder),
        }


def _mps_control() -> str:
    return shutil.which("nvidia-cuda-mps-control") or "/usr/local/nvidia/bin/nvidia-cuda-mps-control"


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """One load: which kernel, on which share, for how long or how much work, and how busy."""

    kernel: str
    share: float = 1.0
    seconds: float = 0.0
    rounds: int = 0
    duty: float = 1.0


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Report what a load achieved."""

    rounds: int
    seconds: float
    busy_s: float

    @property
    def rounds_per_s(self) -> float:
        return self.rounds / self.seconds if self.seconds > 0 else 0.0


class RunningLoad:
    """A load that has finished its warm-up and is now busy."""

    def __init__(self, program: Program, spec: LoadSpec, mps: Mps) -> None:
        # Under MPS the driver limits the share; without it the load must do so itself.
        own_limit = 1.0 if mps.active else spec.share
        numbers = (spec.seconds, spec.rounds, spec.duty, own_limit)
        command = [str(program.path), spec.kernel, *(f"{number:.9g}" for number in numbers)]
        # Unbuffered: the line read here must not take along what `finish` is to read.
        self._process = subprocess.Popen(
            command, env=dict(mps.client_env(spec.share)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        assert self._process.stdout is not None
        # After its warm-up: time to load the program and to clock up is not measured.
        if self._process.stdout.readline().strip() != b"READY":
            _, error = self._process.communicate(timeout=30)
            raise LoadFailed(f"{' '.join(command)}: {error.decode(errors='replace').strip()[-300:]}")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def finish(self, timeout_s: float = 60.0) -> LoadResult:
        """Wait for its end and return what it did."""
        try:
            output, error = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as expired:
            self.stop()
            raise LoadFailed(f"a load did not end within {timeout_s:g} s") from expired
        if self._process.returncode != 0:
            raise LoadFailed(error.decode(errors="replace").strip()[-300:])
        # The last line: CUDA libraries may print warnings before.
        about = json.loads(output.strip().splitlines()[-1])
        return LoadResult(int(about["rounds"]), float(about["seconds"]), float(about["busy_s"]))

    def stop(self) -> None:
        """End it now, its work unreported."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def started_mps(program: Program) -> Mps:
    """Start MPS, if a small load really runs under it; otherwise none, with the reason."""
    mps = Mps().start()
    if mps.active:
        try:
            # A daemon that starts may still refuse clients (old driver, exclusive mode), which only a real load
            # tells.
            RunningLoad(program, LoadSpec(program.kernels[-1], 0.5, 0.3), mps).finish(30.0)
        except (LoadFailed, OSError, subprocess.SubprocessError) as error:
            mps.stop()
            mps.reason = f"the daemon started, but a client failed: {error}"
    return mps

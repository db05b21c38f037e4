"""The whole product on a real GPU: server, agent, workflow, learned duty, joules (`make bench-runtime-gpu-whole`).

Needs an NVIDIA GPU with MPS, torch and nvidia-ml-py, and what a server needs (`wattflow[run]`; on a machine without a
network: `pip install --target wheels --python-version 3.12 --only-binary=:all: …` elsewhere, `PYTHONPATH=src:wheels`
there). Starts `wattflow up`
in a folder of its own on loopback, then

1. runs `examples/runtime/mixed_devices.py`: CPUs and a GPU as it chooses (an FPGA only where Verilator is installed);
2. runs a function that keeps half of a GPU busy for about two thirds of its time, alone and then two at a time. Each
   run times its own kernels, so that the duty that the agent read can be set beside the one that it had;
3. asks what was learned, reads NVML's counter itself and sets the tasks' joules beside it.

Ends with one line per figure; all of it goes to a file as JSON. Ends with 1 where something did not run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "runtime" / "mixed_devices.py"
NEEDED = ("torch", "pynvml", "numba", "numpy", "msgspec", "fastapi", "uvicorn", "sqlalchemy", "aiohttp", "typer",
          "rich", "cloudpickle")  # fmt: skip
FOUND: dict[str, Any] = {"figures": {}}


def figure(name: str, value: float, unit: str, goal: str = "none", ok: bool = True) -> None:
    """Print a figure and keep it."""
    print(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}", flush=True)
    FOUND["figures"][name] = {"value": value, "unit": unit, "goal": goal, "ok": ok}


def products(count: int, size: int, rest_s: float) -> tuple[float, float]:
    """So many matrix products with a rest after each; seconds in kernels, and seconds from the first to the last."""
    import time as clock

    import torch

    a = torch.randn(size, size, device="cuda")
    (a @ a).sum().item()
    busy_s, began = 0.0, clock.monotonic()
    for _ in range(count):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        a @ a
        last.record()
        torch.cuda.synchronize()
        busy_s += first.elapsed_time(last) / 1000
        clock.sleep(rest_s)
    return busy_s, clock.monotonic() - began


def cli(*args: str, timeout_s: float = 600.0) -> subprocess.CompletedProcess[str]:
    """Run the command line; what it says is shown."""
    print("$ wattflow", *args, flush=True)
    done = subprocess.run([sys.executable, "-m", "wattflow.cli", *args], capture_output=True, text=True,
                          timeout=timeout_s, check=False)  # fmt: skip
    print(done.stdout + done.stderr, end="", flush=True)
    return done


def wait_for_gpu(connection: Any) -> dict[str, Any]:
    """The node of this machine's agent, once it is here with its GPU."""
    end_s = time.monotonic() + 120
    while True:
        nodes: list[dict[str, Any]] = connection.call("GET", "/v1/nodes")
        if nodes and nodes[0]["state"] == "on":
            if not any(device["kind"] == "gpu" for device in nodes[0]["devices"]):
                raise SystemExit(f"the agent found no GPU: {nodes[0]['devices']}")
            return nodes[0]
        if time.monotonic() > end_s:
            raise SystemExit("no agent came")
        time.sleep(0.1)


def mixed_devices() -> None:
    """The example, as a person runs it."""
    done = cli("run", str(EXAMPLE))
    FOUND["mixed_devices"] = {"exit_code": done.returncode, "said": done.stdout.splitlines()}
    right = done.returncode == 0 and "as expected" in done.stdout
    on_gpu = "spectrum: ran on gpu" in done.stdout
    figure("gpu_whole_example_right", float(right), "yes", "1", right)
    figure("gpu_whole_example_on_gpu", float(on_gpu), "yes", "1", on_gpu)


def learned_duty(client: Any, connection: Any, options: argparse.Namespace) -> None:
    """Runs alone, then two at a time: what each told of itself beside what was read and learned."""
    import cloudpickle

    import wattflow

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    work = wattflow.task(cpus=1, gpu=0.5, gpu_memory="8GiB", estimate="10s")(products)
    given = (options.count, options.size, options.rest_s)
    told: list[dict[str, Any]] = []

    def ended(futures: list[Any], beside: int) -> None:
        for future in futures:
            busy_s, lasted_s = future.result(600)
            attempt = future.attempts()[-1]
            joules = future.energy()
            runtime_s = attempt["ended_s"] - attempt["started_s"]
            told.append({"beside": beside, "own_duty": busy_s / runtime_s, "loop_s": lasted_s, "runtime_s": runtime_s,
                         "read_duty": attempt["gpu_duty"], "read_beside": attempt["gpu_beside"],
                         "samples": attempt["gpu_samples"], "device": attempt["device"],
                         "cold_s": attempt["cold_s"], "joules": joules.joules,
                         "provenance": joules.provenance})  # fmt: skip
            print(f"# {json.dumps(told[-1])}", flush=True)

    for _ in range(options.alone):
        ended([client.submit(work, *given)], 0)
    for _ in range(options.pairs):
        ended([client.submit(work, *given) for _ in range(2)], 1)
    FOUND["runs"] = told
    report(told, connection)


def report(told: list[dict[str, Any]], connection: Any) -> None:
    """Figures of the runs."""
    read = [row for row in told if row["read_duty"] is not None]
    figure("gpu_whole_runs_read", len(read), "runs", f"{len(told)}", len(read) == len(told))
    alone = [row for row in read if row["beside"] == 0]
    company = [row for row in read if row["beside"] == 1]
    if not alone or not company:
        return
    own, seen = (statistics.median(row[name] for row in alone) for name in ("own_duty", "read_duty"))
    figure("gpu_whole_own_duty", own, "of the run")
    figure("gpu_whole_read_duty", seen, "of the run")
    figure("gpu_whole_duty_error", abs(own - seen), "of the run", "<=0.15", abs(own - seen) <= 0.15)
    stretch = statistics.median(r["loop_s"] for r in company) / statistics.median(r["loop_s"] for r in alone)
    figure("gpu_whole_stretch_in_company", stretch, "x")
    beside = statistics.median(row["read_beside"] for row in company)
    figure("gpu_whole_beside", beside, "of the GPU", "0.05 to 0.5", 0.05 <= beside <= 0.5)
    functions = connection.call("GET", "/v1/functions")
    node = connection.call("GET", "/v1/nodes")[0]
    FOUND["learned"] = {"functions": functions, "interference": node["interference"]}
    print(f"# learned: {json.dumps(FOUND['learned'])}", flush=True)
    duties = [duty for function in functions for duty in function["gpu_duty"].values()]
    figure("gpu_whole_duty_learned", max(duties, default=-1.0), "of the run", "known", bool(duties))
    known = node["interference"] is not None
    figure("gpu_whole_interference_learned", node["interference"] if known else -1.0, "1", "known", known)


def joules(told: list[dict[str, Any]], counted_j: float, seconds: float) -> None:
    """The tasks' joules beside the counter's: tasks have the processor's on top, the counter the idle GPU's."""
    charged_j = sum(row["joules"] for row in told)
    figure("gpu_whole_counter", counted_j, "J")
    figure("gpu_whole_tasks", charged_j, "J")
    figure("gpu_whole_mean_watts", counted_j / seconds, "W")
    share = charged_j / counted_j
    figure("gpu_whole_tasks_of_counter", share, "x", "0.5 to 1.3", 0.5 <= share <= 1.3)
    FOUND["counted_j"], FOUND["seconds"] = counted_j, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/runtime_gpu_whole.json"))
    parser.add_argument("--sharing", default="mps", choices=("mps", "exclusive", "time-slice"))
    parser.add_argument("--alone", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--rest-s", type=float, default=0.02)
    options = parser.parse_args()
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"not installed here: {', '.join(missing)}; see the extras serve and meters", file=sys.stderr)
        return 2
    from wattflow.energy.meters.nvml import NvmlMeter
    from wattflow.energy.meters.port import NoReading

    try:
        meter = NvmlMeter()
    except NoReading as error:
        print(f"no GPU here that NVML shows: {error}", file=sys.stderr)
        return 2
    fpga = shutil.which("verilator") is not None
    print("# FPGA: played by Verilator" if fpga else "# FPGA: absent, no Verilator here; CPU and GPU run alone")
    FOUND["fpga"] = "verilator" if fpga else "absent"
    with tempfile.TemporaryDirectory(prefix="wattflow-gpu-") as folder:
        os.environ["WATTFLOW_HOME"] = folder
        failed = through(options, meter, fpga)
        if failed:
            for log in sorted(Path(folder).glob("*.log")):
                print(f"# {log.name}:\n{log.read_text()[-4000:]}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(FOUND, indent=1))
    print(f"# written to {options.out}")
    return int(failed)


def through(options: argparse.Namespace, meter: Any, fpga: bool) -> bool:
    """Everything between `up` and `down`; whether something did not run."""
    import wattflow
    from wattflow.runtime.connection import Connection
    from wattflow.runtime.home import Home

    started = cli("up", "--port", "0", "--gpu-sharing", options.sharing, "--preload", "cloudpickle,numpy,torch",
                  *(["--fpgas", "1"] if fpga else []))  # fmt: skip
    if started.returncode:
        return True
    try:
        place = Home.of(os.environ["WATTFLOW_HOME"])
        connection = Connection(place.url(), place.token("user"))
        FOUND["node"] = wait_for_gpu(connection)
        cli("nodes")
        mixed_devices()
        before_j, began = meter.read().joules["gpu-0"], time.monotonic()
        with wattflow.Client(place.url(), place.token("user"), name="duty") as client:
            learned_duty(client, connection, options)
        joules(FOUND["runs"], meter.read().joules["gpu-0"] - before_j, time.monotonic() - began)
        cli("ps")
        return bool(FOUND["mixed_devices"]["exit_code"])
    except Exception as error:
        FOUND["error"] = f"{type(error).__name__}: {error}"
        print(f"# failed: {FOUND['error']}", flush=True)
        return True
    finally:
        cli("down")


if __name__ == "__main__":
    sys.exit(main())

"""The page in a real browser: how fast it paints, pans and zooms, how small it is, and how soon an event is seen.

Needs Node, the packages of web/ (`make web-tools`) and Chromium. Ends with one line per figure.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wattflow.files.columns import Column, pack, unpack
from wattflow.generate.benchmark import DEMOS
from wattflow.lab.compare.comparison import Comparison, SeedResult
from wattflow.lab.figures.metrics import metrics
from wattflow.lab.show.report import report
from wattflow.lab.show.run_columns import More, run_columns
from wattflow.model.run import Run
from wattflow.sim.simulate import SimOptions, simulate

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from web.files_page import WEB as BUILT  # noqa: E402
from web.files_page import files_page  # noqa: E402

PARTS = ("drawing", "views", "live")
VIEWS = {"runs": "/#/", "run": "/#/run/small", "workflow": "/#/workflow/small", "compare": "/#/compare",
         "profiles": "/#/profiles/small"}  # fmt: skip
READY = {"runs": "tbody", "run": ".timeline", "workflow": ".dag", "compare": ".both", "profiles": ".profile canvas"}


def figure(name: str, value: float, unit: str, goal: str = "none", ok: bool = True) -> None:
    print(f"figure {name} {value:.4g} {unit} goal {goal} {'ok' if ok else 'short'}", flush=True)


def browse(address: str, scenario: str, **given: object) -> tuple[Any, list[str]]:
    """What the scenario saw, and every request to another host."""
    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    command = ["node", str(ROOT / "web" / "tests" / "drive.mjs"), browser, address, scenario, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(f"{scenario}: {done.stderr[-2000:]}")
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    if seen["errors"]:
        raise SystemExit(f"{scenario}: errors on the page: {seen['errors'][:3]}")
    return seen["result"], seen["foreign"]


def recorded(workflows: int) -> Run:
    """Workflows of 42 tasks one after the other on the demo's cluster, with their power log."""
    recipe = replace(DEMOS["map-reduce"], workflows=workflows)
    return simulate(recipe, "mixed", "least-energy", options=SimOptions(record_power=True))


def repeated(data: bytes, times: int) -> bytes:
    """The document with its attempts, power and sleep again and again, one after the other: many bars, same density."""
    found = unpack(data)
    span = float(found.about["end_ms"]) - float(found.about["start_ms"])
    clocks = {"attempts": ("ready", "placed", "start", "end"), "power": ("time",), "sleep": ("from", "to")}
    tables: dict[str, dict[str, Column]] = {}
    for name, table in found.tables.items():
        tables[name] = {}
        for column, values in table.items():
            if name not in clocks or not isinstance(values, np.ndarray):
                tables[name][column] = Column(values)
                continue
            shift = np.rint(span) if column in clocks[name] else 0
            tables[name][column] = Column(np.concatenate([values + (k * shift if shift else 0) for k in range(times)]))
    for name in ("power", "sleep"):
        order = np.argsort(np.asarray(tables[name]["node"].values), kind="stable")
        tables[name] = {key: Column(np.asarray(column.values)[order]) for key, column in tables[name].items()}
    about = {**found.about, "end_ms": float(found.about["start_ms"]) + times * np.rint(span)}
    return pack(about, found.strings, tables)


def drawing() -> None:
    """First paint and frames at 100,000 and 1,000,000 attempts; sizes of page and report."""
    run = recorded(2381)
    whole = run_columns(run, More(about={"id": "big"}))
    print(f"{len(run.attempts):,} attempts: {len(whole):,} bytes, {len(gzip.compress(whole, 6)):,} gzipped")
    with files_page({"big": whole, "million": repeated(whole, 10)}) as address:
        big, _ = browse(address, "speed", path="/#/run/big", loads=5)
        million, _ = browse(address, "speed", path="/#/run/million", loads=1)
    figure("web_first_paint_100k_s", big["first_s"], "s", "<=1.5", big["first_s"] <= 1.5)
    for name in ("pan", "zoom"):
        figure(f"web_{name}_100k_fps", big[name], "frames/s", ">=30", big[name] >= 30)
    figure("web_pan_1m_fps", million["pan"], "frames/s", ">=20", million["pan"] >= 20)
    figure("web_zoom_1m_fps", million["zoom"], "frames/s")
    figure("web_first_paint_1m_s", million["first_s"], "s")
    page = sum(len(gzip.compress(path.read_bytes(), 9)) for path in BUILT.rglob("*") if path.is_file()) / 1000
    figure("web_page_gzipped_kb", page, "KB", "<=250", page <= 250)
    size = len(report(_alone(run)).encode()) / 1e6
    figure("web_report_100k_mb", size, "MB", "<=3", size <= 3)


def _alone(run: Run) -> Comparison:
    points = (SeedResult("stream", run.policy, 0, metrics(run)),)
    return Comparison(
        run.cluster, run.policy, ("stream",), (run.policy,), (0,), points, {("stream", run.policy): run}, ()
    )


def views() -> tuple[int, int]:
    """Count violations of accessibility rules on the views of saved runs in both schemes, and foreign requests."""
    runs = {"small": recorded(2), "other": replace(recorded(2), policy="again")}
    with files_page({name: run_columns(run, More(about={"id": name})) for name, run in runs.items()}, runs) as address:
        seen, foreign = browse(address, "views", views=VIEWS, ready=READY)
    return sum(len(each["violations"]) for each in seen.values()), len(foreign)


def live() -> tuple[int, int]:
    """Time from an attempt's end on a real server to the frame that counts it; count as `views` on a server's views."""
    from e2e.board_server import Server

    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            tasks = [{"key": f"t{i}", "estimate_s": 0.5} for i in range(400)]
            server.submit("stream", tasks)
            token = server.home.token("user")
            seen, foreign = browse(f"http://127.0.0.1:{server.port}/", "latency", token=token, seconds=25)
        finally:
            server.stop()
    late = np.array(seen["ms"])
    print(f"{len(late)} batches seen")
    p95 = float(np.quantile(late, 0.95)) if len(late) else float("nan")
    figure("web_event_to_pixel_p95_ms", p95, "ms", "<=600", p95 <= 600)
    return len(seen["violations"]), len(foreign)


def main(argv: Sequence[str] | None = None) -> None:
    """Run all parts, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS)
    chosen = parser.parse_args(argv).part
    os.chdir(ROOT)
    if chosen in (None, "drawing"):
        drawing()
    counted = [part() for name, part in (("views", views), ("live", live)) if chosen in (None, name)]
    if counted:
        faults, foreign = (sum(each) for each in zip(*counted, strict=True))
        figure("web_axe_violations", faults, "violations", "0", faults == 0)
        figure("web_foreign_requests", foreign, "requests", "0", foreign == 0)


if __name__ == "__main__":
    main()

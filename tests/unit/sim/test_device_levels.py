"""Levels of devices: seconds, joules, one clock for all that share, and what is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wattflow.model.cluster import Cluster, Device, DeviceLevels, Frequency, FunctionLevels, Node
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.run import Run
from wattflow.model.workflow import Function, Task, Variant, Workflow
from wattflow.model.workload import Shape, Workload
from wattflow.policy import registry, view
from wattflow.policy.base import Policy
from wattflow.sim import SimOptions, simulate

COPY = FunctionLevels("copy", (1.0, 1.005, 1.5), (1.0, 0.8, 0.75))
PRODUCT = FunctionLevels("product", (1.0, 1.25, 2.0), (1.0, 0.9, 0.95))
CLOCKS = DeviceLevels("clock_mhz", (2000.0, 1500.0, 1000.0), (COPY, PRODUCT))
IDLE_W, FULL_W = 100.0, 500.0


def gpus(levels: DeviceLevels | None = CLOCKS, sharing: str = "mps") -> Cluster:
    """One node with one GPU; its processor draws nothing, so that all joules are the GPU's."""
    card = Device("gpu", "a", sharing=sharing, power=DeviceProfile((0.0, 1.0), (IDLE_W, FULL_W)), levels=levels)
    power = PowerProfile((0.0, 8.0), (0.0, 0.0))
    return Cluster("one-gpu", (Node("a", 8, 1 << 34, power=power, devices=(card,)),))


def work(*rows: tuple[str, float], deadline_s: float = np.inf, share: float = 0.5, release_s=None) -> Workload:
    names = list(dict.fromkeys(name for name, _ in rows))
    return Workload.of_columns(
        "work",
        release_s=np.zeros(len(rows)) if release_s is None else np.asarray(release_s, float),
        runtime_s=np.array([seconds for _, seconds in rows]),
        shapes=[Shape(i, (Variant("gpu", 1, 0, "gpu", 1, share),)) for i in range(len(names))],
        shape=np.array([names.index(name) for name, _ in rows], np.int32),
        functions=tuple(map(Function, names)),
        deadline_s=np.full(len(rows), deadline_s),
        one_each=True,
    )


def slowest_first(state, task, variant, out):
    for c in range(out.size):
        out[c] = -view.variant_level(state, variant)


def by_deadline(state, task, variant, out):
    """Full clock with a deadline, else the slowest."""
    for c in range(out.size):
        level = view.variant_level(state, variant)
        out[c] = level if view.deadline_s(state, task) < 1e9 else -level


SLOWEST = Policy("slowest", score=slowest_first).with_settings(frequencies=(0, 1, 2))
URGENT = Policy("urgent", score=by_deadline, slack=True).with_settings(frequencies=(0, 1, 2))


def dynamic_j(run: Run) -> float:
    return run.total_j - IDLE_W * run.span_s


def test_a_level_has_the_seconds_and_joules_of_its_row() -> None:
    run = simulate(work(("product", 100.0), share=1.0), gpus(), SLOWEST)
    assert run.end_s_by_task().tolist() == pytest.approx([200.0])
    # Joules of the whole device, idle watts included.
    assert run.total_j == pytest.approx(0.95 * FULL_W * 100.0)
    assert float(run.attempts["run_j"][0]) == pytest.approx(run.total_j - IDLE_W * 200.0)


def test_an_unknown_function_runs_at_full_clock() -> None:
    run = simulate(work(("stranger", 100.0)), gpus(), SLOWEST)
    assert run.end_s_by_task().tolist() == [100.0]


def test_a_share_stands_in_for_an_unknown_function() -> None:
    shared = DeviceLevels("clock_mhz", (2000.0, 1000.0), compute_share=0.5)
    run = simulate(work(("stranger", 100.0)), gpus(shared), SLOWEST)
    assert run.end_s_by_task().tolist() == pytest.approx([150.0])


def test_the_more_urgent_decides_and_the_others_go_on_at_its_clock() -> None:
    # The copy begins alone at 1000 MHz (1.5 times as long). From 60 s on somebody urgent has the device at full clock
    # for 30 s: 40 of the copy's 100 s are done, 30 more pass, and the last 30 take 45 s again.
    jobs = replace(work(("copy", 100.0), ("product", 30.0), release_s=[0.0, 60.0]), deadline_s=np.array([np.inf, 5e8]))
    run = simulate(jobs, gpus(), URGENT)
    assert run.end_s_by_task().tolist() == pytest.approx([135.0, 90.0])
    # Half of the device's 400 W above idle each; at 1000 MHz the copy's are (500 · 0.75 / 1.5 − 100) / 400 of them.
    slow = (FULL_W * 0.75 / 1.5 - IDLE_W) / (FULL_W - IDLE_W)
    by_task = {int(row["task"]): float(row["run_j"]) for row in run.attempts}
    assert by_task[0] == pytest.approx(200.0 * (slow * (60.0 + 45.0) + 30.0))
    assert by_task[1] == pytest.approx(200.0 * 30.0)
    assert dynamic_j(run) == pytest.approx(sum(by_task.values()))


def test_beside_a_faster_one_no_slower_place_is_offered() -> None:
    jobs = replace(work(("product", 100.0), ("copy", 100.0)), deadline_s=np.array([5e8, np.inf]))
    assert simulate(jobs, gpus(), URGENT).end_s_by_task().tolist() == pytest.approx([100.0, 100.0])


def test_the_flagship_takes_what_costs_no_time_and_leaves_what_makes_late() -> None:
    # A copy loses 0.5 % at 1500 MHz and saves a fifth; a product without slack runs at full clock.
    alone = [simulate(work((name, 100.0), share=1.0), gpus(), "wattflow") for name in ("copy", "product")]
    assert [float(run.end_s_by_task()[0]) for run in alone] == pytest.approx([100.5, 100.0])
    off = simulate(work(("copy", 100.0), share=1.0), gpus(), "wattflow:levels=off")
    assert float(off.end_s_by_task()[0]) == 100.0
    assert alone[0].total_j == pytest.approx(0.8 * off.total_j)


def test_without_an_estimate_the_flagship_keeps_full_clock() -> None:
    jobs = work(("copy", 100.0), share=1.0).with_estimates(np.array([np.nan]))
    assert float(simulate(jobs, gpus(), "wattflow").end_s_by_task()[0]) == 100.0


def test_slack_is_spent_on_a_lower_clock() -> None:
    # Two branches of one workflow, a GPU for each: the long one is critical, the short one may take as long. The node
    # never sleeps, so its idle watts pass whatever is done: above them 1500 MHz takes 45 − 12.5 kJ and 1000 MHz
    # 47.5 − 20 kJ, though the whole device needs fewer joules at 1500 MHz. Slack must do for what estimates err, too:
    # with 120 s less of it 1000 MHz would take too long.
    card = (Variant("gpu", 1, 0, "gpu", 1, 1.0),)
    tasks = (
        Task("long", "long", "product", 400.0, card),
        Task("short", "short", "product", 100.0, card),
        Task("end", "end", "stranger", 10.0, card, ("long", "short")),
    )
    node = gpus(sharing="exclusive").nodes[0]
    cluster = Cluster("two", (replace(node, devices=node.devices * 2),))
    run = simulate(Workload.of([Workflow("w", tasks)]), cluster, "wattflow")
    assert run.end_s_by_task().tolist() == pytest.approx([400.0, 200.0, 410.0])
    tighter = (replace(tasks[0], runtime_s=280.0), *tasks[1:])
    run = simulate(Workload.of([Workflow("w", tighter)]), cluster, "wattflow")
    assert run.end_s_by_task().tolist() == pytest.approx([280.0, 125.0, 290.0])


def test_levels_off_equals_a_device_without_levels() -> None:
    jobs = work(("copy", 50.0), ("product", 70.0), ("copy", 20.0), release_s=[0.0, 5.0, 9.0])
    options = SimOptions(record_power=True)
    off = simulate(jobs, gpus(), "wattflow:levels=off", options=options)
    bare = simulate(jobs, gpus(None), registry.load("wattflow"), options=options)
    assert off.attempts.tobytes() == bare.attempts.tobytes()
    assert off.total_j == bare.total_j


def on_cores(other: float) -> Cluster:
    """A node with levels, and one that is so much slower."""
    power = PowerProfile((0.0, 1.0), (50.0, 150.0))
    quick = Node("quick", 1, 1 << 34, power=power, frequencies=(Frequency(), Frequency(0.8, 0.61)))
    return Cluster("two", (quick, Node("other", 1, 1 << 34, power=power, speed=1 / other)))


@pytest.mark.parametrize(("other", "ends_s"), [(2.7, 125.0), (1.0, 100.0)])
def test_where_cores_differ_a_scheduler_that_does_not_look_is_later_than_a_mean_path(
    other: float, ends_s: float
) -> None:
    # Of 185 s on the mean core the task takes 100 s, and 125 s at the lower clock. A fifth of that and 16 % of the
    # path would leave 21 s of 25; three tenths of the spread of the pace (46 %) are its due, so it may.
    jobs = Workload.of([Workflow("w", (Task("t", "t", "f", 100.0, (Variant(cores=1.0),)),))])
    assert simulate(jobs, on_cores(other), "wattflow").end_s_by_task().tolist() == pytest.approx([ends_s])

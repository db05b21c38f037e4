"""Energy, GPU and serverless policies against decisions worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wattflow.clusters import load_cluster
from wattflow.generate import Recipe
from wattflow.lab.figures.power_series import CapKept, cap_kept
from wattflow.model.cluster import Cluster, Device, Frequency, Node, Series, Serverless, Sleep, Zone
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape, Workload
from wattflow.policy import daydream, levels, peaks, power_cap, registry
from wattflow.sim import SimOptions, simulate
from wattflow.sim.simulate import Simulation

GIB = 2**30


def node(name: str, cores: int = 2, core_w: float = 5.0, idle_w: float = 10.0, **facts) -> Node:
    profile = PowerProfile((0.0, float(cores)), (idle_w, idle_w + core_w * cores))
    return Node(name, cores, 64 * GIB, **({"power": profile} | facts))


def jobs(runtime_s: list[float], release_s: list[float] | None = None, **columns) -> Workload:
    release = np.array(release_s or [0.0] * len(runtime_s))
    return Workload.of_columns("jobs", release_s=release, runtime_s=np.array(runtime_s, float), **columns)


def run(workload: Workload, nodes: list[Node], policy: str, **options):
    return simulate(workload, Cluster("by-hand", tuple(nodes)), registry.load(policy), options=SimOptions(**options))


def places(workload: Workload, nodes: list[Node], policy: str, **options) -> str:
    rows = run(workload, nodes, policy, **options).attempts
    return "".join(nodes[n].name for n in rows["node"][np.argsort(rows["task"], kind="stable")])


def edges(*pairs: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([a for a, _ in pairs], np.int32), np.array([b for _, b in pairs], np.int32)


# The HPE algorithm


def test_hpe_takes_the_fewest_added_watts() -> None:
    assert places(jobs([9.0] * 3), [node("a", 4, core_w=8), node("b", 4, core_w=5)], "hpe") == "bbb"


def test_hpe_guarantees_four_fifths_and_then_prices_the_last_core() -> None:
    # b holds 4 requests; a fifth fits only by its 80 % (5 · 0.8 = 4) and costs P(4) − P(3). The sixth must go to a.
    steep = PowerProfile((0.0, 1.0, 2.0, 3.0, 4.0), (10.0, 12.0, 14.0, 16.0, 26.0))
    a, b = node("a", 4, core_w=11), replace(node("b", 4), power=steep)
    # Added watts on b: 2, 2, 2, 10, then 10 for the one beyond; on a: 11.
    assert places(jobs([9.0] * 6), [a, b], "hpe") == "bbbbba"
    # With a at 9 W a core, b's last core is dearer.
    assert places(jobs([9.0] * 6), [node("a", 4, core_w=9), b], "hpe") == "bbbaaa"
    done = run(jobs([9.0] * 6), [a, b], "hpe")
    assert np.allclose(done.attempts["guarantee"], 0.8)


def test_hpe_respects_the_tdp() -> None:
    # Dynamic watts on b: 5 each; a TDP of 12 W leaves room for two.
    assert places(jobs([9.0] * 4), [node("a", 4, core_w=8), node("b", 4, core_w=5, tdp_w=12.0)], "hpe") == "bbaa"


def test_hpe_respects_the_tdp_where_only_four_fifths_fit() -> None:
    # b has four cores of 10 W and a TDP of 40 W. A fifth task would fit by its 80 %, and 50 W would be placed.
    nodes = [node("a", 4, core_w=20), node("b", 4, core_w=10, tdp_w=40.0)]
    assert places(jobs([9.0] * 5), nodes, "hpe") == "bbbba"
    assert places(jobs([9.0] * 5), [nodes[0], replace(nodes[1], tdp_w=50.0)], "hpe") == "bbbbb"


def test_hpe_starts_all_of_the_paper_s_jobs() -> None:
    nodes = [
        node(f"n{i}", 48, idle_w=60, threads_per_core=2, allocatable_cores=c) for i, c in enumerate((48, 48, 47, 47))
    ]
    fifo, hpe = run(jobs([82.0] * 210), nodes, "fifo"), run(jobs([82.0] * 210), nodes, "hpe")
    assert int((fifo.attempts["placed_s"] == 0).sum()) == 190
    assert int((hpe.attempts["placed_s"] == 0).sum()) == 210


def test_hpe_dial_gives_each_task_what_its_slack_bears() -> None:
    # 0 → {1: 10 s, 2: 2 s} → 3. Task 2 has 8 s of slack: 2 / (2 + 8) = 0.2, so the least, 60 %; the others have none.
    workload = jobs([1, 10, 2, 1], edges=edges((0, 1), (0, 2), (1, 3), (2, 3)))
    done = run(workload, [node("a", 4)], "hpe-dial")
    by_task = dict(zip(done.attempts["task"].tolist(), done.attempts["guarantee"].tolist(), strict=True))
    assert by_task == pytest.approx({0: 1.0, 1: 1.0, 2: 0.6, 3: 1.0})


# Watts and joules


def test_peaks_fits_its_model_through_three_points() -> None:
    k0, k1, k2 = peaks.fit(50.0, 80.0, 140.0)
    assert [k0 + k1 * np.exp(k2 * x) for x in (0, 50, 100)] == pytest.approx([50, 80, 140])
    assert peaks.fit(50.0, 75.0, 100.0) == (50.0, 0.5, 0.0)


def test_peaks_takes_the_smallest_jump_of_its_model() -> None:
    convex = PowerProfile((0.0, 2.0, 4.0), (10.0, 14.0, 30.0))
    # b's model rises by 4 / 3 for the first core, 8 / 3 for the second, 16 / 3 for the third; a by 3.
    nodes = [node("a", 4, core_w=3.0), replace(node("b", 4), power=convex)]
    assert places(jobs([9.0] * 3), nodes, "peaks") == "bba"


def test_least_energy_weighs_watts_with_seconds() -> None:
    # 8 W at speed 2 are 4 J per second of work, 5 W at speed 1 are 5 J.
    assert places(jobs([9.0]), [node("a", core_w=5.0), node("b", core_w=8.0, speed=2.0)], "least-energy") == "b"


def test_least_energy_pays_for_waking() -> None:
    sleepy = node("b", core_w=4.0, idle_w=10.0, sleep=Sleep(1.0, 5.0, wake_w=10.0, after_s=1.0))
    nodes = [node("a", core_w=5.0), sleepy]
    # Saves 1 J a second and costs 50 J to wake: worth it from 50 s on.
    assert places(jobs([40.0], [3.0]), nodes, "least-energy", from_zero=True) == "a"
    assert places(jobs([60.0], [3.0]), nodes, "least-energy", from_zero=True) == "b"


def test_sleep_by_timeout_is_carried_by_the_policy() -> None:
    sleepy = [node("a", sleep=Sleep(1.0, 5.0))]
    workload = jobs([1.0, 1.0], [0.0, 100.0])
    assert run(workload, sleepy, "fifo").scalars["sleeps"] == 0
    assert run(workload, sleepy, "fifo:sleep=30").scalars["sleeps"] == 1


def test_an_unknown_node_loses_and_is_used_when_alone() -> None:
    dark = replace(node("d", 2, speed=9.0), power=None)
    for policy in ("hpe", "peaks", "least-energy", "wattflow", "topsis", "taskflow", "pwr"):
        assert places(jobs([9.0] * 2), [dark, node("a", 2)], policy) == "aa", policy
        assert places(jobs([9.0]), [dark], policy) == "d", policy


def test_topsis_takes_the_candidate_that_dominates() -> None:
    nodes = [node("a", 2, core_w=5.0), node("b", 4, core_w=4.0)]
    assert places(jobs([9.0]), nodes, "topsis") == "b"


def test_topsis_weighs_the_node_s_own_watts() -> None:
    # The task adds 4 W to a and 5 W to b, but a draws 204 W with it and b 15 W: KCSS takes the node's power.
    nodes = [node("a", 2, core_w=4.0, idle_w=200.0), node("b", 2, core_w=5.0, idle_w=10.0)]
    assert places(jobs([9.0]), nodes, "topsis") == "b"


# Delay


def test_taskflow_waits_for_the_frugal_node_within_its_slack() -> None:
    # f: 1 core of 2 W; g: 4 cores of 9 W. Task 0 (10 s) is the critical path and takes f; task 1 (2 s) may start as
    # late as 8 s, f is busy until 10 s, so it waits until 8 s and then goes where it ends first.
    frugal, greedy = node("f", 1, core_w=2.0), node("g", 4, core_w=9.0)
    workload = jobs([10, 2], workflow=np.zeros(2, np.int32))
    done = run(workload, [frugal, greedy], "taskflow")
    assert done.start_s_by_task().tolist() == pytest.approx([0.0, 8.0])
    # With a critical path of 14 s it starts at 10 s on the frugal node, when that becomes free.
    longer = jobs([10, 2, 14], workflow=np.zeros(3, np.int32))
    rows = run(longer, [frugal, greedy], "taskflow").attempts
    second = rows[rows["task"] == 1][0]
    assert (second["start_s"], second["node"]) == (pytest.approx(10.0), 0)


def test_taskflow_keeps_the_makespan() -> None:
    # A chain of 100 s and 1 s. The frugal node is nine times slower: 901 s there, 101 s where HEFT runs it.
    chain = jobs([100, 1], workflow=np.zeros(2, np.int32), edges=edges((0, 1)))
    nodes = [node("f", 2, core_w=0.5, speed=1 / 9), node("g", 2, core_w=9.0)]
    assert [run(chain, nodes, name).makespan_s for name in ("heft", "taskflow")] == pytest.approx([101.0, 101.0])


@pytest.mark.parametrize("family", ["montage", "map-reduce", "layered"])
def test_taskflow_ends_a_workflow_about_when_heft_does(family: str) -> None:
    workload = Recipe(family, 60).draw(3)
    heft, taskflow = (simulate(workload, load_cluster("edge-cloud"), name).makespan_s for name in ("heft", "taskflow"))
    print(f"{family}: heft {heft:.1f} s, taskflow {taskflow:.1f} s")
    assert taskflow <= 1.25 * heft


def test_carbon_delay_waits_for_the_clean_hours() -> None:
    zone = Zone("default", Series(100.0, (500.0, 400.0, 100.0, 600.0)), carbon_known=True)
    cluster = Cluster("clean", (node("a"),), (zone,))
    done = simulate(jobs([50.0]), cluster, registry.load("carbon-delay", delay_s=250.0))
    assert done.start_s_by_task().tolist() == [200.0]
    # Only 150 s may be lost: the cleanest start is then 100 s, when a mean of 400 is reached.
    done = simulate(jobs([50.0]), cluster, registry.load("carbon-delay", delay_s=150.0))
    assert done.start_s_by_task().tolist() == [100.0]
    done = simulate(jobs([50.0]), cluster, registry.load("carbon-delay", delay_s=50.0))
    assert done.start_s_by_task().tolist() == [0.0]


def test_carbon_delay_never_waits_without_a_series() -> None:
    assert run(jobs([50.0]), [node("a")], "carbon-delay").start_s_by_task().tolist() == [0.0]


def test_a_power_cap_over_time_is_kept() -> None:
    # 20 W idle and 5 W a core: two tasks fit below 30 W, all four below 40 W from 50 s on.
    nodes = [node("a", 4, core_w=5.0, idle_w=20.0)]
    capped = power_cap.following(Series(50.0, (30.0, 40.0)))
    done = simulate(jobs([100.0] * 4), Cluster("by-hand", tuple(nodes)), capped)
    assert sorted(done.start_s_by_task().tolist()) == [0.0, 0.0, 50.0, 50.0]


def test_a_cap_in_watts_takes_the_place_of_the_share() -> None:
    # 20 W idle and 5 W a core: two tasks fit below 30 W, three below 36 W, all four below the full 40 W.
    for policy, at_once in (("power-cap:watts=30", 2), ("power-cap:watts=36", 3), ("power-cap:share=1", 4)):
        done = run(jobs([100.0] * 4), [node("a", 4, core_w=5.0, idle_w=20.0)], policy)
        assert done.start_s_by_task().tolist().count(0.0) == at_once


def test_a_cap_of_a_zone_leaves_the_others_alone() -> None:
    # 30 W for zone z: two of its cores; the other two tasks go to the dearer node of zone y.
    nodes = (node("z", 4, core_w=5.0, idle_w=20.0, zone="z"), node("y", 4, core_w=6.0, idle_w=20.0, zone="y"))
    capped = power_cap.following(Series(50.0, (30.0,)), "z")
    done = simulate(jobs([100.0] * 4), Cluster("by-hand", nodes, (Zone("z"), Zone("y"))), capped)
    assert sorted(done.attempts["node"].tolist()) == [0, 0, 1, 1]
    assert done.start_s_by_task().tolist() == [0.0] * 4


def test_a_cap_is_held_by_levels_first_and_by_holding_back_last() -> None:
    # 20 W above idle at full clock, of which 12 are left: at half speed four tasks draw 8 W and start at once. At 7 W
    # three of them do.
    steps = (Frequency(), Frequency(0.5, 0.4))
    nodes = [node("a", 4, core_w=5.0, idle_w=20.0, frequencies=steps)]
    for cap_w, starts in ((32.0, [0.0] * 4), (27.0, [0.0] * 3 + [200.0])):
        series = Series(1000.0, (cap_w,))
        done = simulate(
            jobs([100.0] * 4), Cluster("by-hand", tuple(nodes)), power_cap.following(series),
            options=SimOptions(record_power=True),
        )  # fmt: skip
        assert sorted(done.start_s_by_task().tolist()) == pytest.approx(starts)
        assert cap_kept(done, series) == CapKept(0.0, 0.0)


def test_room_of_a_lower_cap_to_come_is_kept_free_of_long_tasks() -> None:
    # 30 W from 50 s on allow two tasks; 40 W before would allow four, but nobody ends one that runs on.
    series = Series(50.0, (40.0, 30.0, 30.0, 30.0))
    for seconds, starts in ((100.0, [0.0, 0.0, 100.0, 100.0]), (50.0, [0.0] * 4), (60.0, [0.0, 0.0, 60.0, 60.0])):
        done = simulate(
            jobs([seconds] * 4), Cluster("by-hand", (node("a", 4, core_w=5.0, idle_w=20.0),)),
            power_cap.following(series), options=SimOptions(record_power=True),
        )  # fmt: skip
        assert sorted(done.start_s_by_task().tolist()) == starts
        assert cap_kept(done, series) == CapKept(0.0, 0.0)


def test_the_clock_rises_first_where_the_last_end_is_expected() -> None:
    # 40 W idle: 8 W allow two tasks at half clock; from 50 s on 15 W allow one of them its full clock, the longer one.
    steps = (Frequency(), Frequency(0.5, 0.4))
    nodes = tuple(node(name, 1, core_w=10.0, idle_w=20.0, frequencies=steps) for name in ("a", "b"))
    capped = power_cap.following(Series(50.0, (48.0, *[55.0] * 9)))
    done = simulate(jobs([100.0, 200.0]), Cluster("by-hand", nodes), capped)
    assert done.end_s_by_task().tolist() == pytest.approx([200.0, 225.0])


def test_a_cap_that_is_not_kept_is_told() -> None:
    # One task draws 5 W above idle for 100 s; 22 W allow 2 of them.
    done = simulate(
        jobs([100.0]), Cluster("by-hand", (node("a", 4, core_w=5.0, idle_w=20.0),)), "fifo",
        options=SimOptions(record_power=True),
    )  # fmt: skip
    for series, over, time in ((Series(10.0, (22.0,)), 3 / 22, 1.0), (Series(50.0, (22.0, 25.0)), 150 / 2350, 0.5)):
        kept = cap_kept(done, series)
        assert (kept.over, kept.time) == pytest.approx((over, time))


def test_a_run_without_length_is_above_no_cap() -> None:
    done = simulate(
        jobs([100.0]), Cluster("by-hand", (node("a", 4, core_w=5.0, idle_w=20.0),)), "fifo",
        options=SimOptions(record_power=True),
    )  # fmt: skip
    assert cap_kept(replace(done, makespan_s=0.0, lead_s=0.0), Series(10.0, (1.0,))) == CapKept(0.0, 0.0)


def test_frequencies_fall_with_the_cap() -> None:
    # Four tasks draw 20 W above idle; from 50 s on only 10 W are left, which the lower level needs. It is half as fast.
    # At the cap itself nothing falls further.
    steps = (Frequency(), Frequency(0.5, 0.5), Frequency(0.25, 0.25))
    nodes = [node("a", 4, core_w=5.0, idle_w=20.0, frequencies=steps)]
    capped = power_cap.following(Series(50.0, (40.0, 30.0, 30.0, 30.0)))
    done = simulate(jobs([100.0] * 4), Cluster("by-hand", tuple(nodes)), capped)
    assert done.end_s_by_task().tolist() == pytest.approx([150.0] * 4)


# GPUs


def gpu_node(name: str, gpus: int = 2, **facts) -> Node:
    card = Device("gpu", "a", 16 * GIB, "mps", power=DeviceProfile((0.0, 1.0), (10.0, 110.0)))
    return node(name, 8, devices=(card,) * gpus, **facts)


def shares(*sizes: float) -> Workload:
    kinds = sorted(set(sizes))
    shapes = [Shape(0, (Variant("gpu", 1, 0, "gpu", 1, size),)) for size in kinds]
    return jobs([100.0] * len(sizes), shapes=shapes, shape=np.array([kinds.index(s) for s in sizes], np.int32))


def test_fgd_puts_a_half_beside_a_half() -> None:
    # Half and whole GPUs are asked for. A half on the half-used card leaves no fragment that a whole task cannot use.
    done = run(shares(0.5, 0.5, 1.0), [gpu_node("a")], "fgd")
    rows = done.attempts[np.argsort(done.attempts["task"])]
    assert rows["device"].tolist() == [0, 0, 1]
    assert (rows["start_s"] == 0).all()


def test_fgd_gradient_by_hand() -> None:
    # Shapes: 0.5 and 1.0 with frequency 2/3 and 1/3. An idle card has no fragments; half-used, its rest of 0.5 is lost
    # to the whole task: 0.5 / 3. Filling the rest takes that away again.
    from wattflow.policy import fgd

    pods = shares(0.5, 0.5, 1.0)
    sim = Simulation(pods, Cluster("by-hand", (gpu_node("a", 1),)), fgd.targeting(registry.load("fgd"), pods))
    state = sim.state
    handle = state.handle()
    half = int(state.shapes.variant_first[0])
    assert fgd.fragments(handle, 0, -1, -1) == 0.0
    assert fgd.fragments(handle, 0, half, 0) == pytest.approx(0.5 / 3)
    state.devices.share_u[0] = 500_000
    assert fgd.fragments(handle, 0, -1, -1) == pytest.approx(0.5 / 3)
    assert fgd.fragments(handle, 0, half, 0) == 0.0


def test_pwr_prefers_the_frugal_card_where_fragments_tie() -> None:
    hungry = Device("gpu", "a", 16 * GIB, "mps", power=DeviceProfile((0.0, 1.0), (10.0, 310.0)))
    nodes = [node("h", 8, devices=(hungry,)), gpu_node("f", 1)]
    assert places(shares(1.0), nodes, "fgd") == "h"
    assert places(shares(1.0), nodes, "pwr") == "f"


# Serverless


def test_fifer_waits_for_a_warm_container() -> None:
    # A cold start of 10 s, tasks of 4 s with 16 s of slack each: the second waits 4 s more rather than starting cold.
    workload = jobs([4.0, 4.0], [0.0, 1.0], functions=(Function("f", 10.0),))
    done = run(workload, [node("a", 4)], "fifer")
    assert done.start_s_by_task().tolist() == pytest.approx([10.0, 14.0])
    assert done.scalars["cold_starts"] == 1
    cold = run(workload, [node("a", 4)], "fifo")
    assert cold.scalars["cold_starts"] == 2


def test_fifer_makes_another_container_when_the_batch_is_full() -> None:
    # B = ⌊36 / 4⌋ = 9 for one running container: ten that wait are one too many, and a second container is made at 1 s.
    # Both are warm at 14 and 15 s, and nine more runs of 4 s end within everyone's slack, at 37 s.
    workload = jobs([4.0] * 11, [0.0] + [1.0] * 10, functions=(Function("f", 10.0),))
    nodes = Cluster("by-hand", (node("a", 12),))
    assert simulate(workload, nodes, registry.load("fifer", objective=10.0)).scalars["cold_starts"] == 2


def test_daydream_fits_a_weibull() -> None:
    rng = np.random.default_rng(0)
    widths = 12.0 * rng.weibull(1.7, 200_000)
    for quantile in (0.2, 0.5, 0.9):
        found = daydream.weibull_quantile(widths.mean(), widths.std(), quantile)
        assert found == pytest.approx(np.quantile(widths, quantile), rel=0.02)
    assert daydream.weibull_quantile(4.0, 0.0, 0.5) == 4.0


def two_phases() -> Workload:
    """Twice, far apart: g's four tasks follow f's one. The functions of the second workflow are others, h and i."""
    later = 1000.0  # containers are kept for ten minutes
    return jobs(
        [20.0, 5.0, 5.0, 5.0, 5.0] * 2, [0.0] * 5 + [later] * 5, shapes=[Shape(f, (Variant(),)) for f in range(4)],
        shape=np.array([0, 1, 1, 1, 1, 2, 3, 3, 3, 3], np.int32), workflow=np.repeat([0, 1], 5).astype(np.int32),
        functions=tuple(Function(name, start_s) for name, start_s in zip("fghi", (1.0, 6.0, 1.0, 6.0), strict=True)),
        edges=edges(*((first, first + k) for first in (0, 5) for k in range(1, 5))),
    )  # fmt: skip


def test_daydream_has_hot_containers_ready_for_a_function_never_seen() -> None:
    # Phases of one and of four were seen: the 95 % point of their Weibull distribution is above four. In the second
    # workflow hot containers are made while h runs, and i's tasks take them.
    workload, nodes = two_phases(), Cluster("by-hand", (node("a", 12),))
    hot = simulate(workload, nodes, registry.load("daydream", quantile=0.95)).end_s_by_task()
    assert hot[:5].max() == pytest.approx(1 + 20 + 6 + 5)
    assert hot[5:].max() - 1000.0 == pytest.approx(1 + 20 + 5)
    cold = simulate(workload, nodes, "fifo").end_s_by_task()
    assert cold[5:].max() - 1000.0 == pytest.approx(1 + 20 + 6 + 5)


def test_fifer_makes_containers_for_arrivals_that_it_expects() -> None:
    # Pairs of tasks every 25 s; containers are kept for 9 s. Arrivals are counted at 0 s (two), 10 s and 20 s (none):
    # levels 1, 0.65 and 0.378, slopes 0.3, 0.105 and −0.008. At 20 s the last two containers are gone and 0.37 arrivals
    # are expected, so one is made, ready at 22 s, and one of the pair at 25 s takes it.
    times = [0.0, 0.0, 25.0, 25.0]
    brief = Cluster("by-hand", (node("a", 12, keep_alive_s=9.0),))
    workload = jobs([1.0] * 4, times, functions=(Function("f", 2.0),))
    ends = simulate(workload, brief, registry.load("fifer", objective=1.0)).end_s_by_task() - np.array(times)
    assert sorted(ends.tolist()) == pytest.approx([1.0, 3.0, 3.0, 3.0])


def test_mashup_sends_only_wide_phases_to_the_platform() -> None:
    platform = node("p", 100, speed=0.8, serverless=Serverless())
    nodes = [node("v", 2), platform]
    # Two tasks fit into one wave of 10 s on v; the platform would take 12.5 s. Ten would need five waves.
    assert places(jobs([10.0] * 2), nodes, "mashup") == "vv"
    assert places(jobs([10.0] * 10), nodes, "mashup") == "p" * 10


# Our own


def test_wattflow_lets_a_node_sleep_and_packs_the_other() -> None:
    sleep = Sleep(1.0, 5.0)
    nodes = [node("a", 4, idle_w=50, sleep=sleep), node("b", 4, idle_w=50, sleep=sleep)]
    assert len(set(places(jobs([30.0] * 4), nodes, "wattflow"))) == 1
    assert len(set(places(jobs([30.0] * 4), nodes, "fifo"))) == 2


def test_wattflow_passes_a_slow_place_over_when_a_fast_one_is_about_to_come_free() -> None:
    # f has speed 2, s 0.5. Task 0 (10 s) holds f until 5 s. Task 1 (100 s) comes at 1 s: it would end at 201 s on s,
    # the only place with room, and at 5 + 50 s on f, so it waits. Task 2 (2 s, at 2 s) ends no later on s than on f.
    nodes = [node("f", 1, speed=2.0), node("s", 1, speed=0.5)]
    workload = jobs([10, 100, 2], [0, 1, 2])
    done = run(workload, nodes, "wattflow")
    assert done.start_s_by_task().tolist() == pytest.approx([0.0, 5.0, 2.0])
    assert done.end_s_by_task().tolist() == pytest.approx([5.0, 55.0, 6.0])
    # In a long queue nobody holds out for f: both nodes work, and 40 tasks of 10 s end at 160 s instead of 200 s.
    assert run(jobs([10] * 40), nodes, "wattflow").makespan_s < 180.0
    # Without a runtime that is known nothing is promised, and it takes the place that is there.
    unknown = run(jobs([10, 100], [0, 1], estimate_s=np.array([np.nan, 100.0])), nodes, "wattflow")
    assert unknown.start_s_by_task().tolist() == pytest.approx([0.0, 1.0])


def test_wattflow_slows_down_only_what_has_slack() -> None:
    # At level 1 a task takes twice as long on a quarter of the watts. Task 2 has the slack for it.
    levels_offered = (Frequency(), Frequency(0.5, 0.25))
    workload = jobs([10, 50, 10, 10], edges=edges((0, 1), (0, 2), (1, 3), (2, 3)))
    done = run(workload, [node("a", 4, core_w=20.0, idle_w=60.0, frequencies=levels_offered)], "wattflow")
    spans = done.end_s_by_task() - done.start_s_by_task()
    assert spans.tolist() == pytest.approx([10.0, 50.0, 20.0, 10.0])
    assert done.makespan_s == pytest.approx(70.0)


def test_wattflow_beats_hpe_with_sleep_on_a_stream() -> None:
    sleep = Sleep(2.0, 10.0)
    nodes = [
        node(name, 8, core_w=w, idle_w=80, speed=s, sleep=sleep)
        for name, w, s in (("a", 5, 0.6), ("b", 8, 1.2), ("c", 9, 1.2))
    ]
    rng = np.random.default_rng(7)
    workload = jobs(rng.lognormal(3, 0.5, 40).tolist(), np.sort(rng.uniform(0, 1500, 40)).tolist())
    hpe, ours = run(workload, nodes, "hpe:sleep=30"), run(workload, nodes, "wattflow")
    assert ours.total_j < hpe.total_j
    assert ours.makespan_s <= hpe.makespan_s
    assert (ours.end_s_by_task() - workload.release_s).mean() < (hpe.end_s_by_task() - workload.release_s).mean()


@pytest.mark.parametrize("family", ["montage", "map-reduce"])
def test_nobody_waits_under_wattflow(family: str) -> None:
    # Mean response of workflows and makespan of a light stream, means over three seeds, against all nodes on.
    recipe, cluster = Recipe.parse(f"{family}:tasks=40,workflows=20,arrivals=poisson,rate=0.02"), load_cluster("mixed")
    figures: dict[str, list[Any]] = {name: [] for name in ("kubernetes", "wattflow")}
    for seed in range(3):
        workload = recipe.draw(seed)
        for name, rows in figures.items():
            done = simulate(workload, cluster, name, seed=seed)
            end_s = np.zeros(len(workload.workflow_names))
            np.maximum.at(end_s, workload.workflow, done.end_s_by_task())
            rows.append(((end_s - workload.workflow_submit_s).mean(), done.makespan_s, done.total_j))
    base, ours = (np.mean(figures[name], axis=0) for name in figures)
    assert (ours[:2] <= 1.02 * base[:2]).all()
    assert ours[2] < 0.6 * base[2]


# Levels


def test_the_spread_of_the_pace_is_that_of_seconds_over_cores() -> None:
    assert levels.pace_spread(Cluster("alike", (node("a"), node("b")))) == 0.0
    # Two cores at 1 s and two at 2 s of a second's work: half a second about 1.5.
    assert levels.pace_spread(Cluster("two", (node("a", 2), node("b", 2, speed=0.5)))) == pytest.approx(1 / 3)


def test_levels_of_a_diamond() -> None:
    workload = jobs([1, 10, 2, 1], edges=edges((0, 1), (0, 2), (1, 3), (2, 3)))
    found = levels.levels(workload, Cluster("one", (node("a", speed=2.0),)))
    assert found.before.tolist() == [0, 0.5, 0.5, 5.5]
    assert found.rest.tolist() == [6, 5.5, 1.5, 0.5]
    assert found.slack.tolist() == [0, 0, 4, 0]
    assert found.phase.tolist() == [0, 1, 1, 2]
    assert found.work.tolist() == [7] * 4

"""The reference simulator against sums done by hand: accounts, sleep, carbon, cost, failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reference.facts import ACCOUNTS, Options
from reference.hand import edges, ends, node, nodes, starts, tasks
from reference.meter import series_integral
from reference.policies import POLICIES
from reference.simulator import simulate
from wattflow.model import run
from wattflow.model.cluster import Device, Frequency, Network, Series, Sleep, Zone
from wattflow.model.profile import DeviceProfile, PowerProfile
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Shape

FIFO, FIRST = POLICIES["fifo"], POLICIES["first-fit"]
CURVE = PowerProfile((0.0, 1.0, 2.0), (100.0, 130.0, 150.0))


def accounts(result) -> dict[str, Any]:
    return {name: pytest.approx(result.account_j(name)) for name in ACCOUNTS if result.account_j(name)}


def test_the_accounts_are_those_of_a_run() -> None:
    assert ACCOUNTS == run.ACCOUNTS


def test_watts_above_idle_are_shared_by_busy_cores() -> None:
    result = simulate(tasks([10, 4]), nodes(node(2, power=CURVE)), FIFO)
    assert accounts(result) == {"idle": 1000, "run": 4 * 50 + 6 * 30}
    assert [r.run_j for r in result.records] == pytest.approx([100, 280])
    assert result.peak_w == 150


def test_energy_begins_with_the_first_release_or_at_zero() -> None:
    work = tasks([1], release=[5])
    assert accounts(simulate(work, nodes(node(2, power=CURVE)), FIFO)) == {"idle": 100, "run": 30}
    zero = simulate(work, nodes(node(2, power=CURVE)), FIFO, Options(from_zero=True))
    assert accounts(zero) == {"idle": 600, "run": 30}
    assert (zero.makespan_s, zero.start_s) == (1, 0)


def test_frequency_scales_the_cores_that_count() -> None:
    host = node(2, power=CURVE, frequencies=(Frequency(1.0, 1.0), Frequency(0.5, 0.5)))
    result = simulate(tasks([10]), nodes(host), FIFO, Options(levels=(1,)))
    assert accounts(result) == {"idle": 2000, "run": 20 * 15}


def test_a_cold_start_draws_power_into_its_own_account() -> None:
    result = simulate(tasks([4], function=Function("f", cold_start_s=2)), nodes(node(2, power=CURVE)), FIFO)
    assert accounts(result) == {"idle": 600, "cold_start": 60, "run": 120}
    assert result.records[0].cold_j == pytest.approx(60)


def test_a_device_adds_its_idle_watts_and_what_its_share_draws() -> None:
    card = Device("gpu", sharing="mps", power=DeviceProfile((0.0, 0.5, 1.0), (20.0, 120.0, 140.0)))
    variant = Variant("gpu", 1.0, 0, "gpu", 1, 0.25)
    result = simulate(tasks([10, 5], variants=(variant,)), nodes(node(2, power=CURVE, devices=(card,))), FIFO)
    # 0 … 5 s: host 50 W and card 100 W above idle, half each; 5 … 10 s: 30 W and 50 W.
    assert accounts(result) == {"idle": 1200, "run": 5 * 150 + 5 * 80}
    assert [r.run_j for r in result.records] == pytest.approx([375, 375 + 400])


def test_a_node_without_a_profile_draws_nothing_known() -> None:
    assert simulate(tasks([3]), nodes(node(2)), FIFO).energy_j.sum() == 0


def test_a_sleeping_node_falls_asleep_sleeps_and_wakes() -> None:
    host = node(2, power=CURVE, sleep=Sleep(5, wake_s=4, enter_s=2, wake_w=80, after_s=3))
    result = simulate(tasks([1, 1], release=[0, 20]), nodes(host), FIFO)
    # on 0–4 (busy 0–1), falling 4–6, asleep 6–20, waking 20–24, on 24–25 (busy)
    assert starts(result, 2) == [0, 24]
    assert accounts(result) == {"idle": 500, "sleep": 70, "wake": 6 * 80, "run": 60}
    given = simulate(tasks([1], release=[20]), nodes(node(2, power=CURVE, sleep=Sleep(5, 4, after_s=3))), FIFO,
                     Options(from_zero=True))  # fmt: skip
    assert accounts(given) == {"idle": 400, "sleep": 17 * 5, "wake": 400, "run": 30}


def test_carbon_and_cost_across_an_hour_boundary() -> None:
    zone = Zone("default", Series(3600.0, (100.0, 400.0)), Series(1800.0, (0.1, 0.3)), pue=1.5)
    host = node(1, power=PowerProfile((0.0, 1.0), (0.0, 1000.0)), price_per_hour=2.0)
    result = simulate(tasks([3600], release=[2700]), nodes(host, zones=(zone,)), FIFO)
    # 2700–3600 at 100 g and 0.3; 3600–5400 at 400 g and 0.1; 5400–6300 at 400 g and 0.3; 1 kW
    assert result.carbon_g[0] == pytest.approx(1.5 * (0.25 * 100 + 0.75 * 400))
    assert result.cost[0] == pytest.approx(1.5 * (0.25 * 0.3 + 0.5 * 0.1 + 0.25 * 0.3) + 2.0)


def test_a_series_repeats() -> None:
    assert series_integral(Series(10.0, (1.0, 3.0)), 5, 45) == pytest.approx(5 + 30 + 10 + 30 + 5)


def test_marginal_energy_goes_where_it_adds_least() -> None:
    steep = node(2, power=PowerProfile((0.0, 2.0), (50.0, 100.0)))
    flat = node(2, power=PowerProfile((0.0, 2.0), (150.0, 160.0)))
    result = simulate(tasks([10, 10, 10]), nodes(steep, flat), POLICIES["marginal-energy"])
    assert sorted((r.task, r.node) for r in result.records) == [(0, 1), (1, 1), (2, 0)]


def test_most_allocated_packs_and_least_loaded_spreads() -> None:
    cluster = nodes(node(2), node(2))
    assert [r.node for r in simulate(tasks([1, 1.5]), cluster, POLICIES["most-allocated"]).records] == [0, 0]
    assert [r.node for r in simulate(tasks([1, 1.5]), cluster, FIFO).records] == [0, 1]


def test_a_failed_attempt_is_lost_and_tried_again() -> None:
    options = Options(task_failures={(0, 0): 0.25, (0, 1): 0.5})
    result = simulate(tasks([8, 1], edges=edges((0, 1))), nodes(node(1, power=CURVE)), FIFO, options)
    assert [(r.outcome, r.attempt, r.start_s, r.end_s) for r in result.of_task(0)] == [
        ("failed", 0, 0, 2), ("failed", 1, 2, 6), ("done", 2, 6, 14),
    ]  # fmt: skip
    assert ends(result, 2) == [14, 15]
    assert accounts(result) == {"idle": 1500, "lost": 180, "run": 270}


def test_after_the_last_retry_a_task_and_its_children_are_given_up() -> None:
    options = Options(max_retries=1, task_failures={(0, 0): 0.5, (0, 1): 0.5})
    result = simulate(tasks([2, 1, 5], edges=edges((0, 1))), nodes(node(2)), FIFO, options)
    assert result.abandoned == (0, 1)
    assert [(r.task, r.outcome) for r in result.records] == [(0, "failed"), (0, "failed"), (2, "done")]
    assert result.end_s == 5


def test_a_retry_starts_from_the_last_checkpoint() -> None:
    saving = Function("f", checkpoint_s=3, checkpoint_cost_s=0.5)
    # 10 s of work and three checkpoints: 11.5 s. It fails at 0.7 · 11.5 = 8.05: two are written (at 3.5 and 7).
    # The retry has 4 s of work and one checkpoint: 4.5 s.
    result = simulate(tasks([10], function=saving), nodes(node()), FIFO, Options(task_failures={(0, 0): 0.7}))
    assert [r.end_s for r in result.records] == pytest.approx([8.05, 12.55])
    assert simulate(tasks([9], function=saving), nodes(node()), FIFO).end_s == 10  # none at the very end


def test_a_lost_node_ends_its_attempts_and_draws_nothing() -> None:
    host = node(1, power=CURVE, keep_alive_s=100)
    work = tasks([10], function=Function("f", cold_start_s=2))
    result = simulate(work, nodes(host), FIFO, Options(node_failures=((0, 5.0, 8.0),)))
    assert [(r.outcome, r.placed_s, r.cold_s, r.start_s, r.end_s) for r in result.records] == [
        ("node_lost", 0, 2, 2, 5), ("done", 8, 2, 10, 20),
    ]  # fmt: skip
    assert [r.ready_s for r in result.records] == [0, 5]
    assert accounts(result) == {"idle": 1700, "lost": 150, "cold_start": 60, "run": 300}


def test_a_lost_part_takes_its_gang_along() -> None:
    work = tasks([4], shapes=(Shape(0, (Variant(),), 2),))
    result = simulate(work, nodes(node(1), node(1)), FIFO, Options(node_failures=((1, 3.0, 4.0),)))
    assert [(r.part, r.outcome, r.end_s) for r in result.records] == [
        (1, "node_lost", 3), (0, "cancelled", 3), (0, "done", 8), (1, "done", 8),
    ]  # fmt: skip


def test_transfer_joules_are_paid_when_the_data_are_there() -> None:
    zone = Zone("default", Series(4.0, (7.2e6, 3.6e6)))
    host = node(1, network=Network(10, energy_j_per_byte=2))
    result = simulate(tasks([1], input_bytes=np.array([50.0])), nodes(host, zones=(zone,)), FIFO)
    assert result.carbon_g[0] == pytest.approx(100)  # 100 J at 5 s, in the second step
    assert result.peak_w == 0

"""A kernel without the parts that a run lacks answers as the whole one does, and is used only where it may be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.cases import FEATURES, random_case
from reference.engine_side import POLICIES
from wattflow.clusters import load_cluster
from wattflow.generate import benchmark_workload
from wattflow.model.workflow import Function
from wattflow.model.workload import Workload
from wattflow.sim import SimOptions
from wattflow.sim.simulate import Simulation

PLAIN = ("dag", "arrivals", "strict", "twins", "memory", "tags", "guarantee", "rounds", "frequency", "carbon",
         "estimates", "zero_runtimes")  # fmt: skip
RICH = tuple(name for name in FEATURES if name not in (*PLAIN, "overcommit", "zones", "multi_device", "duty"))
"""Features that take more than the plain parts by themselves (a second zone may: its data; so may crowded nodes)."""


def simulation(seed: int, features: frozenset[str], policy: str = "fifo") -> Simulation:
    workload, cluster, options = random_case(seed, features)
    chosen = POLICIES[policy].with_settings(
        queue=options.queue, guarantees=options.guarantees, frequencies=options.levels, wakes=options.see_sleeping
    )
    given_options = SimOptions(
        round_s=options.round_s or 0.0, message_s=options.message_s, from_zero=options.from_zero, record_power=True,
        outages=options.node_failures, task_faults=tuple((t, a, x) for (t, a), x in options.task_failures.items()),
    )  # fmt: skip
    return Simulation(workload, cluster, chosen, seed=1, options=given_options)


def everything(made: Simulation) -> list[bytes]:
    run = made.run()
    assert run.power_log is not None
    tables = [getattr(made.state, name).tobytes() for name in ("clock", "counts", "nodes", "tasks")]
    return [run.attempts.tobytes(), run.energy_j.tobytes(), run.power_log.tobytes(), run.carbon_g.tobytes(), *tables]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 10**6),
    st.sets(st.sampled_from(PLAIN), max_size=8).map(frozenset),
    st.sampled_from(sorted(POLICIES)),
)
def test_without_the_parts_that_are_lacking_every_byte_is_the_same(
    seed: int, features: frozenset[str], policy: str
) -> None:
    small, whole = simulation(seed, features, policy), simulation(seed, features, policy)
    whole.lacks = ()
    assert everything(small) == everything(whole)


def test_most_plain_cases_do_without() -> None:
    made = [simulation(seed, frozenset(("dag", "arrivals", "memory"))) for seed in range(8)]
    assert all(one.lacks == ("live", "rich") for one in made)


@pytest.mark.parametrize("feature", RICH)
def test_one_feature_more_takes_the_whole_kernel(feature: str) -> None:
    made = [simulation(seed, frozenset(("dag", "arrivals", feature))) for seed in range(6)]
    assert any(one.lacks == () for one in made)


def test_policies_and_options_that_act_take_the_whole_kernel() -> None:
    workload, cluster = benchmark_workload(20, "dag"), load_cluster("bench-64x4")
    assert Simulation(workload, cluster, "fifo").lacks
    assert Simulation(workload, cluster, "min-min").lacks == ()
    for options in (SimOptions(queue="easy-backfill"), SimOptions(message_s=0.1), SimOptions(outages=((0, 1.0, 2.0),))):
        assert Simulation(workload, cluster, "fifo", options=options).lacks == ()


@pytest.mark.parametrize("facts", [{"failure_rate": 0.1}, {"checkpoint_s": 5.0}, {"cold_start_s": 1.0}])
def test_functions_that_may_fail_or_start_cold_take_the_whole_kernel(facts: dict[str, float]) -> None:
    plain = benchmark_workload(20, "dag")
    functions: tuple[Function, ...] = tuple(replace(f, **facts) for f in plain.functions)  # type: ignore[arg-type]
    workload: Workload = replace(plain, functions=functions)
    assert Simulation(workload, load_cluster("bench-64x4"), "fifo").lacks == ()

"""Laws of every simulated run: joules add up, nothing is oversubscribed, no task is lost or done twice."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.cases import FEATURES, random_case
from reference.engine_side import POLICIES
from wattflow.model.cluster import Faults
from wattflow.model.run import ACCOUNTS, OUTCOMES, Run
from wattflow.sim import SimOptions, simulate

DONE, TIME_LIMIT = OUTCOMES.index("done"), OUTCOMES.index("time_limit")
CALM = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Case:
    """A generated case with any mix of features, some of them with failures that the run draws itself."""

    seed: int
    features: frozenset[str]
    policy: str
    failure_rate: float
    faults: Faults | None

    def run(self, seed: int = 1) -> Run:
        workload, cluster, options = random_case(self.seed, self.features)
        functions = tuple(replace(f, failure_rate=self.failure_rate) for f in workload.functions)
        workload = replace(workload, functions=functions)
        cluster = replace(cluster, nodes=tuple(replace(node, faults=self.faults) for node in cluster.nodes))
        policy = POLICIES[self.policy].with_settings(
            queue=options.queue, guarantees=options.guarantees, frequencies=options.levels, wakes=options.see_sleeping
        )
        given_options = SimOptions(
            round_s=options.round_s or 0.0, message_s=options.message_s, from_zero=options.from_zero, record_power=True,
            outages=options.node_failures, task_faults=tuple((t, a, x) for (t, a), x in options.task_failures.items()),
        )  # fmt: skip
        return simulate(workload, cluster, policy, seed=seed, options=given_options)


def cases(without: frozenset[str] = frozenset()) -> st.SearchStrategy[Case]:
    known = [name for name in FEATURES if name not in without]
    spot = st.builds(Faults, st.just(60.0), st.just(5.0), st.sampled_from((0.0, 2.0)))
    return st.builds(
        Case,
        st.integers(0, 10**6),
        st.sets(st.sampled_from(known), max_size=10).map(frozenset),
        st.sampled_from(sorted(POLICIES)),
        st.sampled_from((0.0, 0.0, 0.05, 0.3)),
        st.none() | st.none() | spot,
    )


def column(run: Run, account: str) -> np.ndarray:
    return run.energy_j[:, ACCOUNTS.index(account)]


@CALM
@given(cases())
def test_accounts_sum_to_the_power_curve(case: Case) -> None:
    run = case.run()
    end_s = run.start_s + run.span_s
    assert run.power_log is not None
    drawn_j = np.zeros(len(run.cluster.nodes))
    for node in range(len(drawn_j)):
        log = run.power_log[run.power_log["node"] == node]
        edges = np.append(log["time_s"], end_s)
        assert (np.diff(edges) >= 0).all()
        drawn_j[node] = float(np.sum(np.diff(edges) * log["watts"]))
    assert run.energy_j.sum(axis=1) - column(run, "transfer") == pytest.approx(drawn_j, rel=1e-9, abs=1e-9)
    assert (run.energy_j >= -1e-6).all()


@CALM
@given(cases())
def test_joules_of_attempts_sum_to_their_accounts(case: Case) -> None:
    run = case.run()
    count = len(run.cluster.nodes)
    rows = run.attempts
    own_j = np.bincount(rows["node"], weights=rows["run_j"] + rows["cold_j"].astype(float), minlength=count)
    booked_j = column(run, "run") + column(run, "cold_start") + column(run, "lost")
    assert own_j == pytest.approx(booked_j, rel=1e-6, abs=1e-4)
    moved_j = np.bincount(rows["node"], weights=rows["transfer_j"].astype(float), minlength=count)
    assert moved_j == pytest.approx(column(run, "transfer"), rel=1e-6, abs=1e-6)


@CALM
@given(cases())
def test_stages_follow_each_other_and_children_their_parents(case: Case) -> None:
    run = case.run()
    rows = run.attempts
    assert (rows["ready_s"] >= run.workload.release_s[rows["task"]]).all()
    assert (rows["placed_s"] >= rows["ready_s"]).all()
    done = rows[rows["outcome"] == DONE]
    stages_s = sum(done[name].astype(float) for name in ("message_s", "wake_s", "cold_s", "data_s", "hold_s"))
    assert done["placed_s"] + stages_s == pytest.approx(done["start_s"], rel=1e-6, abs=1e-5)
    ended = run.end_s_by_task()
    for task, ready_s in zip(rows["task"].tolist(), rows["ready_s"].tolist(), strict=True):
        parents = run.workload.parents_of(task)
        assert (ended[parents] <= ready_s).all(), f"task {task} was ready before its parents had ended"


@CALM
@given(cases(without=frozenset({"multi_device"})))
def test_no_node_and_no_device_is_oversubscribed(case: Case) -> None:
    run = case.run()
    changes: dict[int, list[tuple[float, int, np.void]]] = defaultdict(list)
    for row in run.attempts:
        if row["end_s"] > row["placed_s"]:
            changes[int(row["node"])] += [(float(row["placed_s"]), 1, row), (float(row["end_s"]), -1, row)]
    for index, found in changes.items():
        node = run.cluster.nodes[index]
        cores = memory = 0.0
        shares: dict[int, float] = defaultdict(float)
        for at_s, sign, row in sorted(found, key=lambda change: change[:2]):
            variant = run.workload.shapes[run.workload.shape[row["task"]]].variants[row["variant"]]
            cores += sign * float(row["guarantee"]) * variant.cores
            memory += sign * variant.memory_bytes
            offered = node.request_cores
            if node.serverless is not None:
                offered = min(offered, node.serverless.burst + node.serverless.ramp_per_s * at_s)
            assert sign < 0 or cores <= offered + 1e-6, f"{cores} cores on {node.name} at {at_s} s"
            assert memory <= node.memory_bytes
            if row["device"] >= 0:
                device = node.devices[row["device"]]
                part = {"exclusive": 1.0, "time-slice": 1 / device.slots, "mps": variant.device_share,
                        "mig": np.ceil(variant.device_share * 7 - 1e-9) / 7}[device.sharing]  # fmt: skip
                shares[int(row["device"])] += sign * part
                assert shares[int(row["device"])] <= 1 + 1e-9


@CALM
@given(cases(), st.integers(0, 2**31 - 1))
def test_the_same_seed_gives_the_same_bytes(case: Case, seed: int) -> None:
    first, second = case.run(seed), case.run(seed)
    assert first.attempts.tobytes() == second.attempts.tobytes()
    assert first.power_log is not None and second.power_log is not None
    assert first.power_log.tobytes() == second.power_log.tobytes()
    assert first.energy_j.tobytes() == second.energy_j.tobytes()
    assert first.carbon_g.tobytes() == second.carbon_g.tobytes()
    assert (first.cost.tobytes(), first.peak_w) == (second.cost.tobytes(), second.peak_w)


@CALM
@given(cases())
def test_no_task_is_lost_or_done_twice(case: Case) -> None:
    run = case.run()
    workload = run.workload
    by_task: dict[int, list[np.void]] = defaultdict(list)
    for row in run.attempts:
        by_task[int(row["task"])].append(row)
    given_up: set[int] = set()
    for task in workload.topological_order().tolist():
        parts = workload.shapes[workload.shape[task]].parts
        rows = by_task[task]
        if not rows:
            assert given_up & set(workload.parents_of(task).tolist()), f"task {task} never ran and no parent failed"
            given_up.add(task)
            continue
        last = max(int(row["attempt"]) for row in rows)
        assert sorted({int(row["attempt"]) for row in rows}) == list(range(last + 1))
        for attempt in range(last + 1):
            assert sorted(int(row["part"]) for row in rows if row["attempt"] == attempt) == list(range(parts))
        outcomes = [[int(row["outcome"]) for row in rows if row["attempt"] == a] for a in range(last + 1)]
        assert all(set(found) != {DONE} for found in outcomes[:-1]), f"task {task} ran again after it was done"
        if set(outcomes[-1]) != {DONE}:
            assert last == 3 or TIME_LIMIT in outcomes[-1], f"task {task} was not tried again"
            given_up.add(task)
        assert bool(run.finished[task]) == (task not in given_up)

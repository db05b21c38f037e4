"""`check_policy`: does a policy keep the contract? Ours run it in the tests; so may yours.

    from wattflow.testing import check_policy
    check_policy(my_policy)

It runs the policy on sample states, looks at the State in the middle of each run, and asks for the costs of tasks that
are still to be placed, as they are and with facts taken away. All that is wrong is listed in one `BrokenPolicy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine import fit
from wattflow.engine.tables import ACT_CAP, ACT_FREQUENCY, PARAMS, READY, TABLES, UNKNOWN_COST, WAITING
from wattflow.kernel import jit
from wattflow.model.errors import BrokenPolicy
from wattflow.model.workload import Workload
from wattflow.policy import arrivals, bind
from wattflow.policy.base import Policy
from wattflow.sim.simulate import Simulation
from wattflow.testing.sample_states import Sample, sample_states

Costs = NDArray[np.float64]

# Working memory of a policy, and what it answers with.
MAY_CHANGE = ("memory", "params", "actions", "cost", "candidates", "scratch", "gang")
MAY_CHANGE_IN = {"clock": ("retry_at", "random"), "counts": ("action_n", "candidate_n")}
_TASKS_PER_LOOK = 8


@dataclass(frozen=True, slots=True)
class Look:
    """One question to a policy: the costs of a task's variant in a State."""

    where: str
    state: Any
    task: int
    variant: int
    count: int


def check_policy(policy: Policy, states: Sequence[Sample] | None = None) -> None:
    """Raise `BrokenPolicy`, which lists everything found, unless the policy keeps its contract.

    Costs are finite or inf, never NaN; the same State gives the same costs; nothing in the State changes but memory,
    params, actions and the time to retry; unknown estimates and watts are borne; an unknown node loses to every known
    one (where the policy looks at watts at all) and is used when there is no other; an empty list of candidates is
    borne; every task is finished, no child before its parent; ranks made for many workflows are those of each alone.
    """
    problems = list(_check_words(policy))
    for sample in states if states is not None else sample_states():
        try:
            problems += _check_rank(policy, sample)
            problems += _check_run(policy, sample)
            for look in looks(policy, sample):
                problems += _check_look(policy, look)
        except BrokenPolicy as error:  # the simulator stops at a NaN; what other samples show is listed all the same
            problems.append(f"{sample.name}: {error}")
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in dict.fromkeys(problems))
        raise BrokenPolicy(f"policy {policy.name!r} breaks its contract:\n{listed}")


@jit.jit
def _candidates(state, variant, task):
    return fit.candidates(state, variant, task)


def looks(policy: Policy, sample: Sample) -> Iterator[Look]:
    """Yield states in the middle of the policy's own run, with tasks that are not placed yet."""
    run = Simulation(sample.workload, sample.cluster, policy, seed=1)
    for at_s in sample.looks_s:
        run.advance(at_s)
        state: Any = run.state
        # Tasks that the run itself has not placed by then: the State is one that the policy has made.
        waiting = np.flatnonzero((state.tasks.state == WAITING) | (state.tasks.state == READY))
        for task in waiting[:_TASKS_PER_LOOK].tolist():
            shape = int(state.tasks.form[task])
            first = int(state.shapes.variant_first[shape])
            for variant in range(first, first + int(state.shapes.variant_n[shape])):
                # A copy for each question, so that no answer can depend on the question before.
                copy = state.copy()
                count = int(_candidates(copy.handle(), variant, task))
                copy.counts["candidate_n"] = count
                where = f"{sample.name}, {at_s:g} s, task {task}, variant {variant - first}"
                yield Look(where, copy, task, variant, count)


def costs_of(policy: Policy, look: Look) -> tuple[Costs, Any]:
    """Ask for the costs of all candidates of a look; returns the State after the call too, the look stays as it is."""
    state = look.state.copy()
    # -1 is no cost that a policy gives: what it leaves out shows.
    out = np.full(look.count, -1.0)
    if policy.score is None:
        return np.zeros(look.count), state
    with np.errstate(over="ignore"):
        _callable(policy, state, 1)(_handle(policy, state), look.task, look.variant, out)
    return out, state


def _handle(policy: Policy, state: Any) -> Any:
    return state.handle() if policy.compiled else state


def _callable(policy: Policy, state: Any, which: int) -> Callable[..., Any]:
    part = ("priority", "score", "act")[which]
    called: Callable[..., Any] = bind.compiled(policy, state, part) if policy.compiled else getattr(policy, part)
    return called


def _check_words(policy: Policy) -> Iterator[str]:
    if not policy.name or policy.name != policy.name.strip().lower() or " " in policy.name:
        yield f"its name {policy.name!r} must be lower case without blanks"
    if not policy.summary:
        yield "it has no summary"
    if len(policy.params) > PARAMS:
        yield f"it has {len(policy.params)} parameters; {PARAMS} fit"


def _twice(workload: Workload) -> Workload:
    """Return the workload's workflows, and half a minute later once more."""
    # Half a minute, so that the copies overlap in time without being equal.
    flows, later_s = len(workload.workflow_names), 30.0
    same = ("runtime_s", "estimate_s", "shape", "input_bytes", "output_bytes", "parent_bytes")
    doubled: dict[str, Any] = {name: np.concatenate([getattr(workload, name)] * 2) for name in same}
    return replace(
        workload,
        workflow=np.concatenate([workload.workflow, workload.workflow + flows]).astype(np.int32),
        release_s=np.concatenate([workload.release_s, workload.release_s + later_s]),
        deadline_s=np.concatenate([workload.deadline_s, workload.deadline_s + later_s]),
        parent_start=np.concatenate([workload.parent_start, workload.parent_start[1:] + workload.edge_count]),
        parent=np.concatenate([workload.parent, workload.parent + len(workload)]).astype(np.int32),
        workflow_names=(*workload.workflow_names, *workload.workflow_names),
        workflow_submit_s=np.concatenate([workload.workflow_submit_s, workload.workflow_submit_s + later_s]),
        ids=None,
        documents=(),
        columns={},
        **doubled,
    )


def _check_rank(policy: Policy, sample: Sample) -> Iterator[str]:
    """Check that a rank made for many workflows at once gives each the numbers that it gets alone."""
    if policy.rank is None or not getattr(policy.rank, "vectorised", False):
        return
    both = _twice(sample.workload)
    together = policy.rank(both, sample.cluster)
    for tasks, workflow in arrivals.workflows(both):
        if not np.array_equal(together[tasks], policy.rank(workflow, sample.cluster)):
            yield f"{sample.name}: the ranks of {workflow.name} depend on other workflows"


def _check_run(policy: Policy, sample: Sample) -> Iterator[str]:
    run = Simulation(sample.workload, sample.cluster, policy, seed=1).run()
    if not run.finished.all():
        yield f"{sample.name}: {int((~run.finished).sum())} tasks were never finished"
        return
    start, end = run.start_s_by_task(), run.end_s_by_task()
    for task in range(len(sample.workload)):
        for parent in sample.workload.parents_of(task).tolist():
            # Sums of start and runtime may differ in the last digits.
            if end[parent] > start[task] + 1e-9:
                yield f"{sample.name}: task {task} started before its parent {parent} ended"


def _check_look(policy: Policy, look: Look) -> Iterator[str]:
    costs, after = costs_of(policy, look)
    again, _ = costs_of(policy, look)
    if np.isnan(costs).any() or (costs == -np.inf).any():
        yield f"{look.where}: costs {costs} hold NaN or −inf"
    # Bytes: NaN equals NaN here, and 0.0 differs from -0.0.
    if costs.tobytes() != again.tobytes():
        yield f"{look.where}: the same State gave {costs}, then {again}"
    yield from _check_effects(look, after)
    held = look.count > 0 and bool(np.isinf(costs).all())
    # On an idle cluster nothing will happen that could change the answer.
    if held and look.state.counts.running[0] == 0 and not np.isfinite(after.clock.retry_at[0]) and not _offers(look):
        yield f"{look.where}: holds the task on an idle cluster and sets no time to try again"
    if look.count:
        yield from _check_unknown(policy, look, costs)
    yield from _check_rest(policy, look)


def _offers(look: Look) -> bool:
    """Tell whether the task has further variants, of which another may be the one to take."""
    return int(look.state.shapes.variant_n[look.state.tasks.form[look.task]]) > 1


def _check_effects(look: Look, after: Any) -> Iterator[str]:
    for table in TABLES:
        if table in MAY_CHANGE:
            continue
        before, now = getattr(look.state, table), getattr(after, table)
        if table not in MAY_CHANGE_IN:
            if before.tobytes() != now.tobytes():
                yield f"{look.where}: it changes state.{table}"
            continue
        for name in before.dtype.names:
            if name not in MAY_CHANGE_IN[table] and before[name].tobytes() != now[name].tobytes():
                yield f"{look.where}: it changes state.{table}.{name}"


def _changed(look: Look, change: Callable[[Any], None]) -> Look:
    state = look.state.copy()
    change(state)
    return Look(look.where, state, look.task, look.variant, look.count)


def _check_unknown(policy: Policy, look: Look, costs: Costs) -> Iterator[str]:
    def forget_estimate(state: Any) -> None:
        state.tasks.estimate[look.task] = np.nan

    without, _ = costs_of(policy, _changed(look, forget_estimate))
    if np.isnan(without).any():
        yield f"{look.where}: NaN without an estimate"
    nodes = look.state.candidates.node[: look.count]
    classes = look.state.nodes.cls[nodes]
    for cls in np.unique(classes[look.state.classes.known_power[classes] == 1]).tolist():
        # A default argument: the loop's variable would be another one when it is called.
        def forget_watts(state: Any, forgotten: int = cls) -> None:
            state.classes.known_power[forgotten] = 0

        changed = _changed(look, forget_watts)
        unknown, after = costs_of(policy, changed)
        if np.isnan(unknown).any():
            yield f"{look.where}: NaN where watts are unknown"
        if unknown.tobytes() == costs.tobytes():
            continue  # It does not look at watts here.
        dark = changed.state.classes.known_power[classes] == 0
        finite = np.isfinite(unknown)
        if (
            (finite & ~dark).any()
            and (finite & dark).any()
            and unknown[dark & finite].min() < unknown[~dark & finite].max()
        ):
            yield f"{look.where}: a node without a profile costs {unknown[dark].min():g}, less than one with: {unknown}"
        # It may also wait, if it says until when.
        if np.isfinite(costs).any() and not finite.any() and not np.isfinite(after.clock.retry_at[0]):
            yield f"{look.where}: a node without a profile is refused though there is no other"
        # Costs may be a multiple of UNKNOWN_COST (two terms unknown), but sums must stay far from overflow.
        if (unknown[finite] > 4 * UNKNOWN_COST).any():
            yield f"{look.where}: the cost of the unknown is beyond all bounds: {unknown}"


def _check_rest(policy: Policy, look: Look) -> Iterator[str]:
    """Check empty candidates, priority and act."""
    empty, after = costs_of(policy, Look(look.where, look.state, look.task, look.variant, 0))
    if len(empty):
        yield f"{look.where}: costs for no candidates"
    with np.errstate(over="ignore"):
        if policy.priority is not None:
            after = look.state.copy()
            key = _callable(policy, after, 0)(_handle(policy, after), look.task)
            if np.isnan(key):
                yield f"{look.where}: its priority is NaN"
            yield from _check_effects(look, after)
        if policy.act is not None:
            after = look.state.copy()
            _callable(policy, after, 2)(_handle(policy, after))
            yield from _check_effects(look, after)
            rows = after.actions[: int(after.counts.action_n[0])]
            unknown = (rows.kind < 0) | ((rows.kind > ACT_FREQUENCY) & (rows.kind != ACT_CAP))
            if (unknown | (rows.node < 0) | (rows.node >= len(after.nodes))).any():
                yield f"{look.where}: an action of no known kind, or on no node"

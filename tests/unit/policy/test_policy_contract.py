"""Every registered policy keeps the contract; `check_policy` finds those that do not."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from plain_costs import uncompiled_costs
from wattflow.engine import view
from wattflow.model.errors import BrokenPolicy
from wattflow.policy import registry
from wattflow.policy.base import Policy, vectorised
from wattflow.testing import check_policy, sample_states
from wattflow.testing.check_policy import costs_of, looks

AT_ONCE = ("fifo", "kubernetes", "least-energy", "heft", "wattflow", "power-cap")
"""One of each kind; `make test` has all, which take most of a minute together."""
ALL = [name if name in AT_ONCE else pytest.param(name, marks=pytest.mark.slow) for name in registry.names()]
ONLINE = [name for name in registry.names() if registry.load(name).plan is None]


@pytest.mark.parametrize("name", ALL)
def test_policy_keeps_the_contract(name: str) -> None:
    check_policy(registry.load(name), sample_states())


@pytest.mark.parametrize("name", registry.names())
def test_policy_says_what_it_is(name: str) -> None:
    policy = registry.load(name)
    assert policy.name == name
    assert policy.summary
    if policy.paper:
        assert policy.paper.startswith(("10.", "https://"))


@pytest.mark.slow
def test_compiled_and_uncompiled_costs_are_the_same_bytes() -> None:
    questions = [
        (policy, look)
        for policy in map(registry.load, ONLINE)
        if policy.score is not None
        for sample in sample_states()
        for number, look in enumerate(looks(policy, sample))
        if number % 4 == 0
    ]
    for (policy, look), plain in zip(questions, uncompiled_costs(questions), strict=True):
        compiled, _ = costs_of(policy, look)
        assert compiled.tobytes() == plain.tobytes(), (policy.name, look.where, compiled, plain)


def returns_nan(state, task, variant, out):
    out[:] = math.nan


def changes_nodes(state, task, variant, out):
    for c in range(out.size):
        state.nodes.used_mem[state.candidates.node[c]] += 1
        out[c] = 0.0


def unknown_is_zero(state, task, variant, out):
    for c in range(out.size):
        cls = state.nodes.cls[state.candidates.node[c]]
        out[c] = state.classes.full_w[cls] if state.classes.known_power[cls] == 1 else 0.0


def differs_each_time(state, task, variant, out):
    for c in range(out.size):
        out[c] = np.random.random()


def needs_an_estimate(state, task, variant, out):
    for c in range(out.size):
        out[c] = state.tasks.estimate[task] * view.load(state, c)


def refuses_all(state, task, variant, out):
    out[:] = math.inf


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (returns_nan, "NaN"),
        (changes_nodes, "it changes state.nodes"),
        (unknown_is_zero, "a node without a profile costs 0"),
        (differs_each_time, "the same State gave"),
        (needs_an_estimate, "NaN"),
        (refuses_all, "leaves"),
    ],
)
def test_a_broken_policy_is_found(score, message: str) -> None:
    with pytest.raises(BrokenPolicy, match=message):
        check_policy(Policy("broken", "on purpose", score=score))


@vectorised
def looks_at_all_workflows(workflow, cluster):
    return np.full(len(workflow), float(len(workflow)))


def test_a_rank_that_looks_beyond_its_workflow_is_found() -> None:
    with pytest.raises(BrokenPolicy, match="depend on other workflows"):
        check_policy(Policy("far-sighted", "on purpose", rank=looks_at_all_workflows))


def test_words_are_checked() -> None:
    with pytest.raises(BrokenPolicy, match="lower case"):
        check_policy(Policy("Not Good", "on purpose"), [])
    with pytest.raises(BrokenPolicy, match="summary"):
        check_policy(Policy("good"), [])


@pytest.mark.parametrize("name", ONLINE)
def test_the_page_of_policies_names_it(name: str) -> None:
    page = Path(__file__).parents[3] / "docs" / "policies.md"
    assert f"`{name}`" in page.read_text(encoding="utf-8")

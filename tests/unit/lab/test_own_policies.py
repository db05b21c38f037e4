"""Policies of a script: their names, and work that cannot travel to other processes."""

from __future__ import annotations

import pytest

import wattflow as wf
from wattflow.lab.compare.comparison import chosen_policies
from wattflow.lab.run.points import PointJob, Setup, run_jobs
from wattflow.model.errors import BrokenPolicy, InvalidInput
from wattflow.policy import Policy, policy, registry
from wattflow.testing import check_policy


def own(name: str) -> Policy:
    @policy(name, compiled=False)
    def score(state, task, variant, out):
        """The first that fits."""
        out[:] = range(out.size)

    return score


def test_a_policy_of_yours_may_not_take_a_name_of_ours() -> None:
    with pytest.raises(InvalidInput, match="another name"):
        chosen_policies([own("fifo")], "fifo")
    named, _ = chosen_policies([registry.load("heft"), own("mine")], "fifo")
    assert list(named) == ["fifo", "heft", "mine"]


def test_two_policies_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two of the policies"):
        chosen_policies([own("mine"), own("mine")], "fifo")


def test_a_scripts_own_policy_runs_here_when_it_cannot_travel() -> None:
    recipe, cluster = wf.Recipe("bag", tasks=4), wf.load_cluster("mixed")
    jobs = [PointJob("bag", recipe, cluster, chosen, seed) for seed in range(3) for chosen in ("fifo", own("mine"))]
    results = run_jobs(jobs, Setup(workers=2))
    assert len(results.values) == len(jobs)


def test_check_policy_lists_a_nan_instead_of_stopping_there() -> None:
    @policy("broken", compiled=False)
    def score(state, task, variant, out):
        """No number at all."""
        out[:] = float("nan")

    with pytest.raises(BrokenPolicy, match="breaks its contract") as error:
        check_policy(score)
    assert str(error.value).count("NaN") >= 2


def test_all_is_every_policy() -> None:
    named, everything = chosen_policies("all", "kubernetes")
    assert everything and not set(registry.names()) - set(named)

"""A policy as it is typed: ``carbon-delay:delay_s=3600``, ``fifo:sleep=600:order=path``, ``my.py:frugal``.

A name of the registry or a Python file and a name in it, then ``:key=value`` for a tunable number of the policy or one
of the settings that every policy has (`SETTINGS`); ``learned:weights=FILE`` has the weights of a
file. The text itself is the policy's name in every table.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.settings import QUEUES
from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.model.workload import Workload
from wattflow.policy import levels, view
from wattflow.policy.base import Policy, Prepare, vectorised

log = logging.getLogger(__name__)

SETTINGS = ("sleep", "queue", "order", "levels", "shield")
"""Keys that every policy takes, `shield` where it does not plan ahead: idle seconds before a node sleeps; what happens
when the first task does not fit; the queue by workflow, least work or shortest critical path first; lower clocks, `off`
for none or how many levels; the scheduler that bounds what anybody waits."""
MOST_LEVELS = 8


def split(text: str) -> list[str]:
    """Policies of a list with commas between; an empty list is refused."""
    parts = [part.strip() for part in text.split(",")]
    if not any(parts):
        raise InvalidInput("--policies", "names no policy; write names with commas between, or `all`")
    if not all(parts):
        raise InvalidInput("--policies", f"{text!r} has an empty name between two commas")
    return parts


def is_plain(text: str) -> bool:
    """Tell whether the text is a bare name."""
    return ":" not in text


def base_of(text: str) -> tuple[str, list[str]]:
    """Split into what stands before the settings (a name, or ``file.py:name``), and the settings."""
    first, *rest = text.split(":")
    if first.endswith(".py"):
        if not rest or "=" in rest[0] or not rest[0]:
            raise InvalidInput(text, f"name the policy in the file, as in {first}:frugal")
        return f"{first}:{rest[0]}", rest[1:]
    return first, rest


def configured(policy: Policy, text: str, settings: list[str]) -> Policy:
    """The policy with the numbers and settings that were typed, under the typed name."""
    numbers: dict[str, float] = {}
    shield, steps = "", ""
    for item in settings:
        key, equals, value = item.partition("=")
        if not equals:
            raise InvalidInput(text, f"{item!r} is no setting; write key=value with one of {_keys(policy)}")
        # Before the general settings: a policy's own number of that name wins.
        if key in policy.params:
            numbers[key] = _number(text, item, value)
        elif key == "sleep":
            _tell_of_idle(policy)
            policy = replace(policy, sleep_after_s=_number(text, item, value, least=0.0))
        elif key == "queue":
            if value not in QUEUES:
                raise InvalidInput(text, f"queue is one of {', '.join(QUEUES)}, not {value!r}")
            policy = replace(policy, settings=replace(policy.settings, queue=value))
        elif key == "order":
            policy = ordered(policy, value)
        elif key == "levels":
            policy = policy.with_settings(frequencies=_levels(policy, text, value))
        elif key == "shield":
            # An empty value is a variable that nobody set, not the wish to go without.
            if not value:
                raise InvalidInput(text, "shield needs the scheduler that bounds what anybody waits, or none")
            shield = value
        elif key == "weights" and policy.name == "learned":
            policy = replace(policy, prepare=_weighted(value), ready=None)
        elif key == "steps" and policy.name == "power-cap":
            steps = value
        else:
            raise InvalidInput(text, f"{policy.name} has no {key!r}; its keys are {_keys(policy)}")
    # 0 is the number's default, by which the share counts.
    if policy.name == "power-cap" and "watts" in numbers and ("share" in numbers or numbers["watts"] == 0.0):
        raise InvalidInput(text, "a cap is watts=W above 0, or share=S of all nodes' full watts: one of the two")
    policy = policy.with_params(**numbers)
    if steps:
        policy = importlib.import_module("wattflow.policy.power_cap").stepped(policy, steps, alone=not numbers)
    if shield not in ("", "none"):  # last: it has to know what else was asked for
        policy = importlib.import_module("wattflow.plan.guard").shielded(policy, shield)
    return replace(policy, name=text)


def _levels(policy: Policy, text: str, value: str) -> tuple[int, ...]:
    """Return the levels that are offered: none but full clock, or the first so many."""
    if value == "off":
        return (0,)
    if not (value.isdecimal() and 2 <= int(value) <= MOST_LEVELS):
        raise InvalidInput(text, f"levels is off, or how many are looked at (2 to {MOST_LEVELS}), not {value!r}")
    if len(policy.settings.frequencies) == 1:
        raise InvalidInput(text, f"{policy.name} uses no levels, so levels can only be off")
    return tuple(range(int(value)))


def _tell_of_idle(policy: Policy) -> None:
    """Note once that the flagship's ``sleep`` was a dial in break-even times before 0.2."""
    if "idle" in policy.params:
        told_once(f"{policy.name}:sleep= is idle seconds, as for every policy; break-even times are idle= now")


@functools.cache
def told_once(text: str) -> None:
    """Log a note to the user, the first time."""
    log.warning("%s", text)


def _keys(policy: Policy) -> str:
    more = ("weights",) if policy.name == "learned" else ()
    # `plan.guard.shielded` refuses those that plan or keep a cap.
    general = (
        SETTINGS
        if policy.plan is None and not policy.settings.alike
        else tuple(key for key in SETTINGS if key != "shield")
    )
    return ", ".join((*policy.params, *general, *more))


def _weighted(file: str) -> Prepare | None:
    from wattflow.policy import learned, weights

    return learned.with_weights(weights.load(Path(file))[0]).prepare


def _number(text: str, item: str, value: str, least: float = -math.inf) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    # inf is a value of some dials (`wait`), but no time-out.
    if math.isnan(number) or number < least or (math.isinf(number) and least == 0.0):
        raise InvalidInput(text, f"{item!r} needs a number{' of at least 0' if least == 0.0 else ''}")
    return number


def from_file(text: str) -> Policy:
    """``my.py:frugal``: the policy of that name in the file, by its variable or by the name it gives itself."""
    path, _, name = text.partition(":")
    module = _module(str(Path(path).resolve()), path)
    found = {key: value for key, value in vars(module).items() if isinstance(value, Policy)}
    for key, policy in found.items():
        if name in (key, policy.name):
            return policy
    known = ", ".join(sorted(found)) or "none; decorate a function with @wattflow.policy.policy(NAME)"
    raise InvalidInput(text, f"{path} has no policy {name!r}; it has {known}")


@functools.cache
def _module(resolved: str, shown: str) -> object:
    if not Path(resolved).is_file():
        raise InvalidInput(shown, "no such file")
    # Files of one name in two folders are two modules.
    spec = importlib.util.spec_from_file_location(f"wattflow_own_{abs(hash(resolved))}", resolved)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except WattflowError:
        raise
    except Exception as error:
        raise InvalidInput(shown, f"cannot be run: {type(error).__name__}: {error}") from error
    return module


# Orders of the queue, for the setting ``order`` of a policy: the workflow of least work or of the shortest critical
# path first, or the task with the earliest latest start.
#
# The first two keep a stream of workflows moving as SJF keeps a stream of jobs moving. Estimates at the cluster's mean
# speed; computed once per workload in O(tasks + edges). Ties in the queue go to the task that entered first (so a
# workflow's own tasks are first in, first out).


@vectorised
def by_work(workflow: Workload, cluster: Cluster) -> NDArray[np.float64]:
    """Return core seconds of the task's workflow."""
    return levels.levels(workflow, cluster).work


@vectorised
def by_path(workflow: Workload, cluster: Cluster) -> NDArray[np.float64]:
    """Return the critical path of the task's workflow."""
    return levels.levels(workflow, cluster).path


@vectorised
def by_start(workflow: Workload, cluster: Cluster) -> NDArray[np.float64]:
    """Return the latest start of each task if nobody waits: on the critical path, or by a deadline that is earlier."""
    found = levels.levels(workflow, cluster)
    submit = workflow.workflow_submit_s[workflow.workflow] if len(workflow) else np.zeros(0)
    return np.minimum(workflow.deadline_s, submit + found.path) - found.rest


def path_first(state, task):
    """Return the critical path of the task's workflow."""
    return view.path_s(state, task)


ORDERS = {"work": by_work, "path": by_path, "start": by_start}


def ordered(policy: Policy, order: str) -> Policy:
    """Give a policy another order of its queue.

    A score that reads `view.rank` keeps its own ranks: there the priority is replaced, which knows critical paths only.

    Raises:
        InvalidInput: No such order, or a policy that plans, whose queue follows the plan.
    """
    if order not in ORDERS:
        raise InvalidInput(policy.name, f"order is one of {', '.join(ORDERS)}, not {order!r}")
    if policy.plan is not None:
        raise InvalidInput(policy.name, "plans ahead, so its queue follows the plan; order is for policies that do not")
    # A rank is an order by itself: nothing of the policy's own is lost.
    if policy.priority is None and policy.rank is None:
        return replace(policy, rank=ORDERS[order])
    if order == "path":
        return replace(policy, priority=path_first, slack=True)
    raise InvalidInput(policy.name, f"has ranks of its own, which order={order} would replace; it takes order=path")

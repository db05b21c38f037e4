"""All policies by name. Importing this module imports none of them."""

from __future__ import annotations

import importlib

from wattflow.model.errors import unknown_name
from wattflow.policy.base import Policy

POLICIES = {
    "fifo": "wattflow.policy.least_loaded:FIFO",
    "heft": "wattflow.policy.heft:HEFT",
    "peft": "wattflow.policy.peft:PEFT",
    "cpop": "wattflow.policy.cpop:CPOP",
    "eheft": "wattflow.policy.eheft:EHEFT",
    "dewts": "wattflow.policy.dewts:DEWTS",
    "nsga2": "wattflow.plan.nsga2:NSGA2",
}


def names() -> list[str]:
    """Every registered policy, in the order of the documentation."""
    return list(POLICIES)


def load(name: str, **params: float) -> Policy:
    """A policy by name, with other values for its tunable numbers."""
    if name not in POLICIES:
        raise unknown_name("policy", name, POLICIES, f"`wattflow policies` lists all {len(POLICIES)}")
    module, attribute = POLICIES[name].split(":")
    policy: Policy = getattr(importlib.import_module(module), attribute)
    return policy.with_params(**params) if params else policy

"""All policies by name. Importing this module imports none of them."""

from __future__ import annotations

import importlib

from wattflow.model.errors import unknown_name
from wattflow.policy import spec
from wattflow.policy.base import Policy

POLICIES = {
    "fifo": "wattflow.policy.least_loaded:FIFO",
    "round-robin": "wattflow.policy.round_robin:ROUND_ROBIN",
    "random": "wattflow.policy.random_choice:RANDOM",
    "least-loaded": "wattflow.policy.least_loaded:LEAST_LOADED",
    "most-allocated": "wattflow.policy.most_allocated:MOST_ALLOCATED",
    "kubernetes": "wattflow.policy.kubernetes:KUBERNETES",
    "sjf": "wattflow.policy.sjf:SJF",
    "wfp3": "wattflow.policy.wfp3:WFP3",
    "unicep": "wattflow.policy.unicep:UNICEP",
    "f1": "wattflow.policy.f1:F1",
    "min-min": "wattflow.policy.min_min:MIN_MIN",
    "max-min": "wattflow.policy.min_min:MAX_MIN",
    "hpe": "wattflow.policy.hpe:HPE",
    "hpe-dial": "wattflow.policy.hpe:HPE_DIAL",
    "peaks": "wattflow.policy.peaks:PEAKS",
    "fgd": "wattflow.policy.fgd:FGD",
    "pwr": "wattflow.policy.fgd:PWR",
    "taskflow": "wattflow.policy.taskflow:TASKFLOW",
    "shortest-workflow": "wattflow.policy.workflow_order:SHORTEST_WORKFLOW",
    "shortest-critical-path": "wattflow.policy.workflow_order:SHORTEST_CRITICAL_PATH",
    "swf-eft": "wattflow.policy.composites:SWF_EFT",
    "swf-energy": "wattflow.policy.composites:SWF_ENERGY",
    "scp-eft": "wattflow.policy.composites:SCP_EFT",
    "scp-energy": "wattflow.policy.composites:SCP_ENERGY",
    "scp-wattflow": "wattflow.policy.composites:SCP_WATTFLOW",
    "topsis": "wattflow.policy.topsis:TOPSIS",
    "fifer": "wattflow.policy.fifer:FIFER",
    "daydream": "wattflow.policy.daydream:DAYDREAM",
    "mashup": "wattflow.policy.mashup:MASHUP",
    "carbon-delay": "wattflow.policy.carbon_delay:CARBON_DELAY",
    "power-cap": "wattflow.policy.power_cap:POWER_CAP",
    "joulie": "wattflow.policy.joulie:JOULIE",
    "joulie-caps": "wattflow.policy.joulie:JOULIE_CAPS",
    "renewable": "wattflow.policy.renewable:RENEWABLE",
    "eft": "wattflow.policy.eft:EFT",
    "eft-sleep": "wattflow.policy.eft:EFT_SLEEP",
    "least-energy": "wattflow.policy.least_energy:LEAST_ENERGY",
    "least-energy-sleep": "wattflow.policy.least_energy:LEAST_ENERGY_SLEEP",
    "fifo-sleep": "wattflow.policy.least_loaded:FIFO_SLEEP",
    "hpe-sleep": "wattflow.policy.hpe:HPE_SLEEP",
    "wattflow": "wattflow.policy.wattflow:WATTFLOW",
    "learned": "wattflow.policy.learned:LEARNED",
    "rehearsed": "wattflow.plan.rehearsal:REHEARSED",
    "planned": "wattflow.plan.planned:PLANNED",
    "distilled": "wattflow.policy.distilled:DISTILLED",
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
    """A policy by name or as it is typed (`wattflow.policy.spec`), with other values for its tunable numbers."""
    base, settings = (name, []) if spec.is_plain(name) else spec.base_of(name)
    policy = spec.from_file(base) if ":" in base else _registered(base)
    if not spec.is_plain(name):
        policy = spec.configured(policy, name, settings)
    return policy.with_params(**params) if params else policy


def _registered(name: str) -> Policy:
    if name not in POLICIES:
        raise unknown_name("policy", name, POLICIES, f"(`wattflow policies` lists all {len(POLICIES)})")
    module, attribute = POLICIES[name].split(":")
    policy: Policy = getattr(importlib.import_module(module), attribute)
    return policy

"""All policies by name, ours and those that other packages bring. Importing this module imports none of them."""

from __future__ import annotations

import importlib
from typing import cast

from wattflow.model import plugins
from wattflow.model.errors import unknown_name
from wattflow.policy import spec
from wattflow.policy.base import Policy

POLICIES = {
    "fifo": "wattflow.policy.least_loaded:FIFO",
    "round-robin": "wattflow.policy.round_robin:ROUND_ROBIN",
    "random": "wattflow.policy.random_choice:RANDOM",
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
    "least-energy": "wattflow.policy.least_energy:LEAST_ENERGY",
    "priced-energy": "wattflow.policy.priced_energy:PRICED_ENERGY",
    "weighted": "wattflow.policy.weighted:WEIGHTED",
    "wattflow": "wattflow.policy.wattflow:WATTFLOW",
    "learned": "wattflow.policy.learned:LEARNED",
    "heft": "wattflow.policy.heft:HEFT",
    "peft": "wattflow.policy.peft:PEFT",
    "cpop": "wattflow.policy.cpop:CPOP",
    "eheft": "wattflow.policy.eheft:EHEFT",
    "dewts": "wattflow.policy.dewts:DEWTS",
    "nsga2": "wattflow.plan.nsga2:NSGA2",
}

ALIASES = {
    "least-loaded": "fifo",
    "shortest-workflow": "fifo:order=work",
    "shortest-critical-path": "fifo:order=path",
    "swf-eft": "eft:order=work",
    "scp-eft": "eft:order=path",
    "swf-energy": "priced-energy:order=work",
    "scp-energy": "priced-energy:order=path",
    "scp-wattflow": "wattflow:order=path",
    "eft-sleep": "eft:sleep=120",
    "least-energy-sleep": "least-energy:sleep=30",
    "fifo-sleep": "fifo:sleep=30",
    "hpe-sleep": "hpe:sleep=30",
    "rehearsed": "wattflow:shield=kubernetes",
    "distilled": "learned",
    "planned": "wattflow",
}
"""Names of before, accepted for one release more; they are listed nowhere."""
UNLISTED = {"portfolio": "wattflow.policy.portfolio:PORTFOLIO"}
"""Loaded by name, since journals hold them, and listed nowhere: what `wattflow:shield=kubernetes` chooses from."""
SHIELDED = "wattflow"
"""Shielded by default where it serves (`served`)."""
START = ("wattflow", "kubernetes", "least-energy", "eft", "heft")
"""Five to begin with."""
GROUPS = {
    "ours": ("wattflow", "learned"),
    "plain": (
        "fifo", "round-robin", "random", "most-allocated", "kubernetes", "sjf", "eft", "least-energy", "priced-energy",
        "weighted", "power-cap", "renewable",
    ),
    "published": (
        "wfp3", "unicep", "f1", "min-min", "max-min", "hpe", "hpe-dial", "peaks", "fgd", "pwr", "taskflow", "topsis",
        "fifer", "daydream", "mashup", "carbon-delay", "joulie", "joulie-caps",
    ),
    "planners": ("heft", "peft", "cpop", "eheft", "dewts", "nsga2"),
}  # fmt: skip
"""Every policy, by what a reader looks for; `wattflow policies` lists them so."""


def names() -> list[str]:
    """Return every registered policy, in the order of the documentation, then those of other packages."""
    return [*POLICIES, *contributed()]


def contributed() -> list[str]:
    """Return policies that other packages bring (entry points of ``wattflow.policies``)."""
    # Aliases, too: a package must not bring back a name that means something else here.
    return plugins.names(plugins.POLICIES, (*POLICIES, *ALIASES))


def usable() -> dict[str, Policy]:
    """Import the policies of other packages; one that cannot be is left out, with a note."""
    return plugins.usable(plugins.POLICIES, (*POLICIES, *ALIASES), Policy)


def is_known(name: str) -> bool:
    """Tell whether a name, or what stands before its settings, is registered; names of 0.1 are."""
    base = name if spec.is_plain(name) else spec.base_of(name)[0]
    return any(base in known for known in (POLICIES, ALIASES, UNLISTED, contributed()))


def load(name: str, **params: float) -> Policy:
    """Return a policy by name or as it is typed (`wattflow.policy.spec`), with other values for its tunable numbers."""
    base, settings = _meant(name)
    policy = spec.from_file(base) if ":" in base else _registered(base)
    # Under the typed name: tables and journals show what was asked for.
    if settings or base != name:
        policy = spec.configured(policy, name, settings)
    return policy.with_params(**params) if params else policy


def served(name: str) -> str:
    """Return what a name means to a driver that goes on for days: `wattflow` is shielded there.

    A simulation of one workflow keeps the bare rules: it is over before a shield has anything to go by.
    """
    base, settings = _meant(name)
    # Queue, order and time-outs are the shield's to choose; who sets one, or says `shield`, gets what is typed.
    chosen = any(setting.partition("=")[0] in spec.SETTINGS for setting in settings)
    return name if base != SHIELDED or chosen else ":".join([base, *settings, "shield=kubernetes"])


def _meant(name: str) -> tuple[str, list[str]]:
    """Split a typed policy into today's name and its settings; who types a name of 0.1 is told, once."""
    base, settings = (name, []) if spec.is_plain(name) else spec.base_of(name)
    if base not in ALIASES:
        return base, settings
    spec.told_once(f"policy {base} is {ALIASES[base]} now; the old name goes with the next release")
    base, first = spec.base_of(ALIASES[base])
    # The typed settings come behind those of the alias, so that they win.
    return base, [*first, *settings]


def _registered(name: str) -> Policy:
    found = POLICIES.get(name) or UNLISTED.get(name)
    if found is None and name in contributed():
        return cast(Policy, plugins.load(plugins.POLICIES, name, Policy))
    if found is None:
        raise unknown_name("policy", name, names(), f"(`wattflow policies` lists all {len(names())})")
    module, attribute = found.split(":")
    policy: Policy = getattr(importlib.import_module(module), attribute)
    return policy

"""Policies: one file per algorithm. `policy` makes one from a function; `registry` names all of ours."""

from wattflow.policy.base import Policy, policy

__all__ = ["Policy", "policy"]

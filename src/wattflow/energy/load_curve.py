"""Watts against load to watts against busy threads: the law is `wattflow.model.load_curve`, which clusters use too."""

from __future__ import annotations

from wattflow.model.load_curve import SIBLING_SHARE, ends_profile, threads_profile

__all__ = ["SIBLING_SHARE", "ends_profile", "threads_profile"]

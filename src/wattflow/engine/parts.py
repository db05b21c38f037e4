"""Parts of the compiled code that some runs never need, by name (`kernel.jit.optional`).

A simulation knows at its start what its workload, cluster and policy can make happen. What can never be called is
neither compiled nor asked about at each event.
"""

from __future__ import annotations

RICH = "rich"
"""Devices, containers, data, gangs, failures, serverless platforms, sleep, rules on nodes, EASY, actions, …"""
LIVE = "live"
"""Parts that only a live engine has: cancelled tasks in heaps, parked ones, kept costs."""

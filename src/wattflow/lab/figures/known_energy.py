"""Joules and watts of a run as far as they are known: the one place where unknown watts become unknown figures.

Nodes without a power profile (dark nodes) draw watts that nobody knows. A sum that leaves them out is no total: where
there is one, totals, accounts, peak, mean and product are None, and what the other nodes used stands under its own
name, as a lower bound.
"""

from __future__ import annotations

from wattflow.model.run import ACCOUNTS, Run

TOTALS = ("energy_j", "peak_w", "mean_w", "edp_js")
AT_LEAST = "known_energy_j"
"""Joules of the nodes with a profile, where some have none; None where the total itself is known."""


def dark_nodes(run: Run) -> list[int]:
    """Return nodes without a power profile."""
    return [number for number, node in enumerate(run.cluster.nodes) if node.power is None]


def energy_figures(run: Run) -> dict[str, float | None]:
    """Total, accounts, peak and mean watts, energy-delay product, and the lower bound where the total is unknown."""
    dark, span = dark_nodes(run), run.span_s
    values: dict[str, float | None] = dict.fromkeys(
        (*TOTALS, *(f"energy_{account}_j" for account in ACCOUNTS), AT_LEAST)
    )
    values["unknown_power_nodes"] = float(len(dark))
    if dark:
        # Nothing is known at all where every node is dark: then not even a lower bound.
        if len(dark) < len(run.cluster.nodes):
            values[AT_LEAST] = run.total_j
        return values
    values |= {f"energy_{account}_j": run.account_j(account) for account in ACCOUNTS}
    return values | {
        "energy_j": run.total_j,
        "peak_w": None if run.peak_w is None else float(run.peak_w),
        "mean_w": run.total_j / span if span > 0 else None,
        "edp_js": run.total_j * run.makespan_s,
    }


def carbon_g(run: Run) -> float | None:
    """Grams of operation; None where a node has no profile or its zone no carbon series."""
    zones = {zone.name: zone for zone in run.cluster.zones}
    known = all(node.power is not None and zones[node.zone].carbon_known for node in run.cluster.nodes)
    return float(run.carbon_g.sum()) if known else None

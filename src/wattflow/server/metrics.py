"""`GET /metrics`: the server's state as OpenMetrics text, for Prometheus and whoever reads the same format.

Everything is read from memory when it is asked for, so a scrape costs no query, and nothing is counted that nobody
reads. Counters begin at zero with the process, as the format expects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from wattflow import __version__
from wattflow.store.durations import Durations

if TYPE_CHECKING:
    from wattflow.runtime.service import Service
    from wattflow.server.house import House

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
QUANTILES = (0.5, 0.99, 0.999)
Sample = tuple[dict[str, str], float]


def exposition(house: House) -> str:
    """All families, in the order of their names' areas, ended by ``# EOF``."""
    lines: list[str] = []
    for name, kind, about, samples in _families(house):
        lines += [f"# TYPE {name} {kind}", f"# HELP {name} {about}"]
        for labels, value in samples:
            suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
            lines.append(f"{name}{suffix}{_labels(labels)} {value!r}")
    return "\n".join([*lines, "# EOF", ""])


Family = tuple[str, str, str, Iterable[Sample]]


def _families(house: House) -> Iterator[Family]:
    service = house.service
    yield (
        "wattflow",
        "info",
        "Version, policy and driver.",
        [({"version": __version__, "policy": service.decider.policy, "driver": service.driver.name}, 1)],
    )
    yield from _work(service)
    yield from _nodes(service)
    yield from _shield(service)
    yield (
        "wattflow_set_aside",
        "counter",
        "Items that raised and were set aside.",
        _counted(service.aside.counts, "kind"),
    )
    written = service.writer.figures
    yield "wattflow_store_commits", "counter", "Group commits.", [({}, written.commits)]
    yield "wattflow_store_rows", "counter", "Rows written.", [({}, written.rows)]
    yield (
        "wattflow_store_trouble",
        "gauge",
        "1 while the store takes no changes.",
        [({}, int(service.writer.message is not None))],
    )
    yield _quantiles("wattflow_store_commit_seconds", "Time of a group commit.", written.commit_s)
    yield _quantiles("wattflow_turn_seconds", "Time of a turn of the engine.", service.turn_s)
    yield _quantiles("wattflow_loop_late_seconds", "How late the loop's timers are.", house.pulse.late_s)
    yield _quantiles("wattflow_loop_held_seconds", "The server's own part of that.", house.pulse.held_s)
    yield "wattflow_http_requests", "counter", "Requests answered, by status.", _counted(house.requests, "status")
    yield (
        "wattflow_http_connections_refused",
        "counter",
        "Connections closed at a limit, by limit.",
        _counted(house.closed, "limit"),
    )


def _work(service: Service) -> Iterator[Family]:
    open_tasks = sum(flow.open for flow in service.workflows.values())
    running = len(service.attempts)
    yield (
        "wattflow_workflows_open",
        "gauge",
        "Workflows that are open.",
        [({}, sum(flow.state == "open" for flow in service.workflows.values()))],
    )
    yield "wattflow_tasks", "gauge", "Open tasks, by state.", [
        ({"state": "running"}, running), ({"state": "waiting"}, open_tasks - running),
    ]  # fmt: skip
    counts = service.ledger.counts
    yield "wattflow_attempts", "counter", "Attempts that ended, by outcome.", _counted(counts.attempts, "outcome")
    yield (
        "wattflow_task_energy_joules",
        "counter",
        "Joules of attempts, by provenance.",
        _counted(counts.energy_j, "provenance"),
    )
    yield (
        "wattflow_reports_refused",
        "counter",
        "Reports of agents that were refused, by reason.",
        _counted(counts.refused, "reason"),
    )


def _shield(service: Service) -> Iterator[Family]:
    """Nothing where the policy has no shield, or before its first answer."""
    summary = service.decider.shield.get("summary")
    if not summary:
        return
    yield "wattflow_shield_kept", "gauge", "1 while nobody waits longer than promised.", [({}, int(summary["kept"]))]
    yield "wattflow_shield_late", "gauge", "Lateness beside the reference, as a share.", [({}, summary["late"])]
    yield "wattflow_shield_tail", "gauge", "p95 response over the reference's.", [({}, summary["tail"])]
    yield "wattflow_shield_saved", "gauge", "Share of the reference's joules saved, modelled.", [({}, summary["saved"])]
    yield "wattflow_shield_spent", "counter", "Times that the budget was spent.", [({}, summary["spent"])]
    seconds = service.decider.shield["processor_s"]
    yield "wattflow_shield_processor_seconds", "counter", "Processor time of the shield.", [({}, seconds)]


def _nodes(service: Service) -> Iterator[Family]:
    states = Counter(node.state for node in service.nodes)
    yield "wattflow_nodes", "gauge", "Nodes, by state.", _counted(states, "state")
    here = [(node.spec.name, node.load) for node in service.nodes if node.load is not None and node.state == "on"]
    yield (
        "wattflow_node_watts",
        "gauge",
        "What a node draws.",
        [({"node": name, "provenance": load.provenance}, load.watts) for name, load in here if load.watts is not None],
    )
    yield (
        "wattflow_node_cpu_busy",
        "gauge",
        "Busy share of a node's processors.",
        [({"node": name}, load.cpu_busy) for name, load in here],
    )
    yield (
        "wattflow_node_energy_joules",
        "counter",
        "Joules that a node's meter counted, by account.",
        [
            ({"node": node, "account": account}, value)
            for (node, account), value in service.ledger.counts.node_j.items()
        ],
    )


def _counted(counts: Counter[str] | dict[str, float], label: str) -> list[Sample]:
    return [({label: key}, value) for key, value in sorted(counts.items())]


def _quantiles(name: str, about: str, durations: Durations) -> Family:
    found = [(share, durations.quantile(share)) for share in QUANTILES]
    return name, "gauge", about, [({"quantile": f"{share:g}"}, value) for share, value in found if value is not None]


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def _escaped(value: str) -> str:
    """A label's value as the format wants it; a lone surrogate would break the answer's encoding."""
    # A node's name is whatever its agent says.
    value = value.encode("utf-8", "replace").decode()
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

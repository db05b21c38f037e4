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
    from wattflow.server.context import Context

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
QUANTILES = (0.5, 0.99, 0.999)
Sample = tuple[dict[str, str], float]


def exposition(context: Context) -> str:
    """All families, in the order of their names' areas, ended by ``# EOF``."""
    lines: list[str] = []
    for name, kind, about, samples in _families(context):
        lines += [f"# TYPE {name} {kind}", f"# HELP {name} {about}"]
        for labels, value in samples:
            suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
            lines.append(f"{name}{suffix}{_labels(labels)} {value!r}")
    return "\n".join([*lines, "# EOF", ""])


Family = tuple[str, str, str, Iterable[Sample]]


def _families(context: Context) -> Iterator[Family]:
    service, pulse, written = context.service, context.pulse, context.service.writer.figures
    about = {"version": __version__, "policy": service.decider.policy, "driver": service.driver.name}
    yield "wattflow", "info", "Version, policy and driver.", [(about, 1)]
    yield from _work(service)
    yield from _nodes(service)
    yield from _shield(service)
    yield _counter("wattflow_set_aside", "Items that raised and were set aside.", service.aside.counts, "kind")
    yield "wattflow_store_commits", "counter", "Group commits.", [({}, written.commits)]
    yield "wattflow_store_rows", "counter", "Rows written.", [({}, written.rows)]
    yield _gauge(
        "wattflow_store_trouble", "1 while the store takes no changes.", int(service.writer.message is not None)
    )
    yield _quantiles("wattflow_store_commit_seconds", "Time of a group commit.", written.commit_s)
    yield _quantiles("wattflow_turn_seconds", "Time of a turn of the engine.", service.turns.took_s)
    yield _quantiles("wattflow_loop_late_seconds", "How late the loop's timers are.", pulse.late_s)
    yield _quantiles("wattflow_loop_held_seconds", "The server's own part of that.", pulse.held_s)
    yield _counter("wattflow_http_requests", "Requests answered, by status.", context.requests, "status")
    yield _counter("wattflow_http_connections_refused", "Connections closed at a limit.", context.closed, "limit")


def _work(service: Service) -> Iterator[Family]:
    flows, counts, running = service.workflows.values(), service.ledger.counts, len(service.attempts)
    yield _gauge("wattflow_workflows_open", "Workflows that are open.", sum(flow.state == "open" for flow in flows))
    waiting = sum(flow.open for flow in flows) - running
    tasks: list[Sample] = [({"state": "running"}, running), ({"state": "waiting"}, waiting)]
    yield "wattflow_tasks", "gauge", "Open tasks, by state.", tasks
    yield _counter("wattflow_attempts", "Attempts that ended, by outcome.", counts.attempts, "outcome")
    yield _counter("wattflow_task_energy_joules", "Joules of attempts.", counts.energy_j, "provenance")
    yield _counter("wattflow_reports_refused", "Reports of agents that were refused.", counts.refused, "reason")


def _shield(service: Service) -> Iterator[Family]:
    """Nothing where the policy has no shield, or before its first answer."""
    summary = service.decider.shield.get("summary")
    if not summary:
        return
    yield _gauge("wattflow_shield_kept", "1 while nobody waits longer than promised.", int(summary["kept"]))
    yield _gauge("wattflow_shield_late", "Lateness beside the reference, as a share.", summary["late"])
    yield _gauge("wattflow_shield_tail", "p95 response over the reference's.", summary["tail"])
    yield _gauge("wattflow_shield_saved", "Share of the reference's joules saved, modelled.", summary["saved"])
    yield "wattflow_shield_spent", "counter", "Times that the budget was spent.", [({}, summary["spent"])]
    seconds = service.decider.shield["processor_s"]
    yield "wattflow_shield_processor_seconds", "counter", "Processor time of the shield.", [({}, seconds)]


def _nodes(service: Service) -> Iterator[Family]:
    states = Counter(node.state for node in service.nodes)
    yield "wattflow_nodes", "gauge", "Nodes, by state.", _counted(states, "state")
    here = [(node.spec.name, node.load) for node in service.nodes if node.load is not None and node.state == "on"]
    watts = [({"node": n, "provenance": load.provenance}, load.watts) for n, load in here if load.watts is not None]
    yield "wattflow_node_watts", "gauge", "What a node draws.", watts
    busy = [({"node": name}, load.cpu_busy) for name, load in here]
    yield "wattflow_node_cpu_busy", "gauge", "Busy share of a node's processors.", busy
    joules = [({"node": n, "account": account}, j) for (n, account), j in service.ledger.counts.node_j.items()]
    yield "wattflow_node_energy_joules", "counter", "Joules that a node's meter counted, by account.", joules


def _gauge(name: str, about: str, value: float) -> Family:
    return name, "gauge", about, [({}, value)]


def _counter(name: str, about: str, counts: Counter[str] | dict[str, float], label: str) -> Family:
    return name, "counter", about, _counted(counts, label)


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

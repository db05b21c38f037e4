"""One policy explained: its rule as its own source tells it, what each number means, and how to set it."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator

from wattflow.policy.base import Policy

WIDTH = 80
MEANINGS = {
    "ties": "equal nodes: the lower index (0) or a seeded draw, as kube-scheduler's (1)",
    "time": "power of the seconds until the end in the cost of a place",
    "packing": "power of the room that stays free in it", "short": "how far short tasks go first",
    "arrival_weight": "weight of log10(arrival) against log10(runtime) · cores",
    "least_guarantee": "smallest share of its request that a task may be guaranteed",
    "alpha": "weight of watts against GPU fragmentation, 0 to 1",
    "tolerance": "how much less frugal a node may be and still count as frugal",
    "cores": "weight of free cores", "memory": "weight of free memory", "watts": "weight of the node's watts",
    "running": "weight of the tasks that run there", "start": "weight of the time until the start",
    "objective": "response aimed at, in multiples of the runtime",
    "quantile": "quantile of the phase widths that containers are made for",
    "delay_s": "seconds that a workflow may be delayed in all",
    "least_saving": "share of the grams that waiting must save",
    "share": "cap, as a share of the watts of all nodes at full load",
    "wait": "how long people may wait, in critical paths; inf: energy alone",
    "late": "watts that a second after the due time costs",
    "second": "watts that a second until the end costs",
    "crowd": "part of the seconds taken from neighbours that counts",
    "amortise": "part of the waiting tasks that share the cost of a waking",
    "idle": "idle time before sleep, in break-even times",
    "merit": "power of the merit that shortens a wasteful node's idling",
    "align": "part of the watts of cores that idle until a task's neighbours have ended",
    "spare": "how much longer a late task may take at once than by waiting for room elsewhere; inf: any",
    "load": "share of the owned cores that is usually wanted",
    "sure": "standard errors of saving before the portfolio's setting is left; 0: the best in the mean",
    "search": "plans that annealing looks at from each of its starts",
    "spread": "how far estimates err, σ of the logarithm; 0 trusts them",
    "margin": "part of the critical path that a task is due earlier, for what estimates leave out",
    "overlap": "transfers planned as the simulator runs them (0) or as the papers do (1)",
    "smt": "a task per core (0), per hardware thread (1), or the better of both (−1)",
    "slack": "share of its span that a workflow may end later to save energy",
    "deadline": "1: slack is spent up to a workflow's deadline too; 0: only up to its planned end and slack",
    "interval_s": "seconds between two forecasts of arrivals", "level": "how fast the forecast's level follows, 0 to 1",
    "slope": "how fast the forecast's trend follows, 0 to 1",
    "performance": "part of the nodes of each class that is not capped",
    "eco": "share of full watts that a capped node keeps",
    "peak": "the supply at its best, as a share of the watts of all nodes at full load",
    "battery_h": "hours that the battery carries that share",
    "lean": "how far the learned rule may move the flagship's decisions; 0: not at all",
    "energy": "weight of joules", "response": "weight of response", "makespan": "weight of makespan",
    "cost": "weight of money", "utilisation": "weight of busy cores",
    "population": "plans of one generation", "generations": "generations of the search", "seed": "seed of the search",
}  # fmt: skip
"""Words for each tunable number, by its name; they mean the same wherever they occur."""
_PARTS = (
    ("score", "cost of a node (least wins)"),
    ("priority", "order of the queue (least first)"),
    ("rank", "rank of a task, once per workflow"),
    ("plan", "plan, at a workflow's arrival"),
    ("act", "at the end of each instant"),
)


def policy_page(policy: Policy) -> str:
    """Return the page as text, 80 columns wide."""
    lines = [f"{policy.name}: {policy.summary}"]
    if policy.knows_future:
        lines.append("It knows the future: the whole workload is seen before the first arrival.")
    if policy.paper:
        lines.append(f"source: {_link(policy.paper)}")
    lines += ["", *_rule(policy), *_numbers(policy), "", *_settings(policy)]
    return "\n".join(lines) + "\n"


def _link(paper: str) -> str:
    return f"https://doi.org/{paper}" if paper.startswith("10.") else paper


def _rule(policy: Policy) -> Iterator[str]:
    parts = [(words, part) for name, words in _PARTS if (part := getattr(policy, name)) is not None]
    about = _module_text(policy)
    if about:
        yield from [*textwrap.indent(about, "  ").splitlines(), ""]
    for words, part in parts:
        text = inspect.getdoc(part)
        if text:
            yield from textwrap.wrap(f"{words}: {' '.join(text.split())}", WIDTH, subsequent_indent="  ")
    if not parts:
        yield "No rule of its own: first in, first out, onto the node with the lowest index."


def _module_text(policy: Policy) -> str:
    for name, _ in _PARTS:
        part = getattr(policy, name)
        module = sys.modules.get(getattr(part, "__module__", "") or "")
        # A user's own policy is described by its functions: its module may say anything.
        if part is not None and module is not None and module.__doc__ and module.__name__.startswith("wattflow."):
            return "\n\n".join(_wrapped(block) for block in inspect.cleandoc(module.__doc__).split("\n\n"))
    return ""


def _wrapped(block: str) -> str:
    """Paragraphs and list items at our width; what is indented (formulas) stays as it is."""
    # Formulas and tables are indented; wrapping would break them.
    if block.startswith((" ", "|")):
        return block
    items = block.replace("\n- ", "\n\n- ").split("\n\n")
    return "\n".join(
        textwrap.fill(" ".join(item.split()), WIDTH - 2, subsequent_indent="  " if item.startswith("- ") else "")
        for item in items
    )


def _numbers(policy: Policy) -> Iterator[str]:
    if not policy.params:
        return
    yield from ("", "numbers")
    width = max(len(f"{name}={value:g}") for name, value in policy.params.items())
    for name, value in policy.params.items():
        yield f"  {f'{name}={value:g}':{width}s}  {MEANINGS.get(name, 'see above')}"


def _settings(policy: Policy) -> Iterator[str]:
    sleep = "as the cluster says" if policy.sleep_after_s is None else f"{policy.sleep_after_s:g}"
    yield "settings"
    yield f"  queue={policy.settings.queue}  when the first task fits nowhere: skip, strict or easy-backfill"
    yield f"  sleep ({sleep})  idle seconds before a node with a sleep state sleeps"
    if policy.plan is None:
        yield "  order  the queue by workflow: work (least first) or path (shortest critical path first)"
    yield "  levels=off  full clock for every task"
    if policy.plan is None and not policy.settings.alike:
        yield "  shield=kubernetes  nobody waits longer than under kube-scheduler; none where it is the default"
    first = next(iter(policy.params), None)
    example = f"{policy.name}:{first}={policy.params[first]:g}" if first else f"{policy.name}:queue=strict"
    yield ""
    yield f"set them where a policy is named, as in: wattflow compare … -p {example}"

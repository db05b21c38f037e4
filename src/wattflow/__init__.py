"""wattflow: energy-aware scheduling of serverless scientific workflows on mixed hardware.

    import wattflow as wf
    workload, cluster = wf.load("montage.json"), wf.load_cluster("mixed")
    run = wf.simulate(workload, cluster, policy="heft")

Names load when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it as true; typing itself would double the cost of the import
if TYPE_CHECKING:
    from typing import Any

    from wattflow import generate, policy
    from wattflow.clusters import load_cluster
    from wattflow.generate import Recipe
    from wattflow.lab.compare.comparison import Comparison, compare
    from wattflow.lab.figures.metrics import metrics
    from wattflow.lab.run.points import Setup
    from wattflow.lab.show.report import write_report
    from wattflow.model.cluster import Cluster, Node
    from wattflow.model.errors import InvalidInput, WattflowError
    from wattflow.model.run import Run
    from wattflow.model.workflow import Workflow
    from wattflow.model.workload import Workload
    from wattflow.runtime.client import Client
    from wattflow.runtime.task import task
    from wattflow.sim.simulate import SimOptions, simulate
    from wattflow.traces import load, save

__version__ = "0.2.0"

_HOME = {
    "Client": "wattflow.runtime.client",
    "Cluster": "wattflow.model.cluster",
    "Comparison": "wattflow.lab.compare.comparison",
    "InvalidInput": "wattflow.model.errors",
    "Node": "wattflow.model.cluster",
    "Recipe": "wattflow.generate",
    "Run": "wattflow.model.run",
    "Setup": "wattflow.lab.run.points",
    "SimOptions": "wattflow.sim",
    "WattflowError": "wattflow.model.errors",
    "Workflow": "wattflow.model.workflow",
    "Workload": "wattflow.model.workload",
    "compare": "wattflow.lab.compare.comparison",
    "load": "wattflow.traces",
    "load_cluster": "wattflow.clusters",
    "metrics": "wattflow.lab.figures.metrics",
    "save": "wattflow.traces",
    "simulate": "wattflow.sim",
    "task": "wattflow.runtime.task",
    "write_report": "wattflow.lab.show.report",
}
_PACKAGES = ("generate", "policy")
_SERVE = ("Client", "task")

__all__ = [
    "Client", "Cluster", "Comparison", "InvalidInput", "Node", "Recipe", "Run", "Setup", "SimOptions", "WattflowError",
    "Workflow", "Workload", "__version__", "compare", "generate", "load", "load_cluster", "metrics", "policy", "save",
    "simulate", "task", "write_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    import importlib

    if name in _PACKAGES:
        return importlib.import_module(f"wattflow.{name}")
    if name in _HOME:
        try:
            value = getattr(importlib.import_module(_HOME[name]), name)
        except ModuleNotFoundError as error:
            if name not in _SERVE:
                raise
            from wattflow.model.errors import MissingExtra

            raise MissingExtra(f"wattflow.{name} needs {error.name}: pip install 'wattflow[run]'") from None
        globals()[name] = value
        return value
    raise AttributeError(f"module 'wattflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

"""First fit in plain Python, in the place of the engine where a test is about something else."""

from __future__ import annotations

from wattflow.kube import accounting, objects
from wattflow.kube.decider import Choice, Chosen, Wanted
from wattflow.kube.filters import feasible
from wattflow.model.profile import PowerProfile


class PlainDecider:
    def __init__(self) -> None:
        self.nodes: dict[str, tuple[objects.Node, accounting.Amounts]] = {}
        self.loads: dict[str, accounting.Amounts] = {}
        self.waiting: dict[str, Wanted] = {}
        self.held: dict[str, tuple[str, Wanted]] = {}
        self.log: list[tuple[str, str]] = []

    def set_node(self, node: objects.Node, allocatable: accounting.Amounts, power: PowerProfile | None) -> None:
        self.nodes[node.metadata.name] = (node, allocatable)

    def drop_node(self, name: str) -> None:
        del self.nodes[name]
        self.held = {uid: held for uid, held in self.held.items() if held[0] != name}

    def set_load(self, name: str, amounts: accounting.Amounts) -> None:
        self.loads[name] = amounts

    def want(self, wanted: Wanted) -> None:
        self.waiting[wanted.pod.metadata.uid] = wanted

    def unwant(self, uid: str) -> None:
        self.waiting.pop(uid, None)

    def started(self, uid: str) -> None:
        self.log.append(("started", uid))

    def refused(self, uid: str, until_s: float) -> None:
        self.log.append(("refused", uid))
        _, self.waiting[uid] = self.held.pop(uid)

    def ended(self, uid: str) -> None:
        self.log.append(("ended", uid))
        self.held.pop(uid, None)

    def resized(self, uid: str, amounts: accounting.Amounts) -> None:
        node, wanted = self.held[uid]
        self.held[uid] = (node, Wanted(wanted.pod, amounts))

    def free(self, name: str, resource: str) -> int:
        used = self.loads.get(name, {}).get(resource, 0)
        used += sum(wanted.amounts.get(resource, 0) for node, wanted in self.held.values() if node == name)
        return self.nodes[name][1].get(resource, 0) - used

    def step(self, now_s: float) -> Chosen:
        choices = []
        for uid, wanted in list(self.waiting.items()):
            for name, (node, _) in self.nodes.items():
                if wanted.nodes is not None and name not in wanted.nodes:
                    continue
                fits = all(value <= self.free(name, resource) for resource, value in wanted.amounts.items())
                if fits and feasible.standing(wanted.pod, node) is None:
                    self.held[uid] = (name, self.waiting.pop(uid))
                    choices.append(Choice(uid, name))
                    break
        return Chosen(choices, float("inf"))

    def why(self, uid: str) -> str:
        return f"0/{len(self.nodes)}"

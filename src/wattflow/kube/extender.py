"""Extender mode: kube-scheduler keeps its filters and its binding and asks us, over HTTP, which node we would take.

Two verbs of its extender interface (nodes by name, ``nodeCacheCapable: true``): *filter* leaves out nodes whose power
cap has no room for the pod, *prioritize* gives our policy's choice the highest score and all others none. The interface
carries no token, so it is served where kube-scheduler is, on loopback. A choice counts on its node until the watch says
where the pod went, or for a while where it went nowhere: kube-scheduler asks about the next pod before that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from wattflow.kube import accounting, objects
from wattflow.kube.decide import EngineDecider
from wattflow.kube.decider import Wanted
from wattflow.kube.scheduler import Scheduler

MOST_SCORE = 10
_PRESUMED_S = 10.0


class Asked(msgspec.Struct):
    """What kube-scheduler sends; it writes its names as Go has them."""

    pod: objects.Pod = msgspec.field(name="Pod")
    names: list[str] | None = msgspec.field(default=None, name="NodeNames")


class Answered(msgspec.Struct):
    """The nodes that stay, and why others do not."""

    names: list[str] = msgspec.field(name="NodeNames")
    failed: dict[str, str] = msgspec.field(name="FailedNodes")
    error: str = msgspec.field(default="", name="Error")


class Priority(msgspec.Struct):
    """A node's score, 0 to 10."""

    host: str = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


_ASKED = msgspec.json.Decoder(Asked)


@dataclass(slots=True)
class Extender:
    """Answers for one scheduler that follows the cluster and binds nothing."""

    scheduler: Scheduler
    choices: int = 0
    _presumed: dict[str, float] = field(default_factory=dict)

    def filter(self, asked: Asked) -> Answered:
        """Leave out nodes whose cap would be passed."""
        failed: dict[str, str] = {}
        needs = accounting.pod_requests(asked.pod)
        book, watts = self.scheduler.book, self.scheduler.watts
        for name in asked.names or []:
            view = book.cluster.nodes.get(name)
            if view is None:
                continue  # it came a moment ago; kube-scheduler knows it
            offered = watts.capped(name, view.allocatable).get(accounting.CPU, 0)
            if offered < view.allocatable.get(accounting.CPU, 0):
                used = view.requested.get(accounting.CPU, 0) + needs.get(accounting.CPU, 0)
                if used > offered:
                    failed[name] = "the node's power cap leaves no room"
        return Answered([name for name in asked.names or [] if name not in failed], failed)

    def prioritize(self, asked: Asked) -> list[Priority]:
        """Our policy's choice among the nodes given."""
        chosen = self._choose(asked.pod, tuple(asked.names or ()))
        return [Priority(name, MOST_SCORE if name == chosen else 0) for name in asked.names or []]

    def _choose(self, pod: objects.Pod, names: tuple[str, ...]) -> str | None:
        scheduler, now_s = self.scheduler, self.scheduler.clock()
        book, decider = scheduler.book, scheduler.decider
        assert isinstance(decider, EngineDecider)
        for uid in [uid for uid, until_s in self._presumed.items() if until_s < now_s]:
            del self._presumed[uid]
            book.unpresume(uid)
        book.unpresume(pod.metadata.uid)  # asked again: it did not go where we said
        book.flush(now_s)
        amounts = accounting.pod_requests(pod)
        chosen = decider.ask(Wanted(pod, amounts, names, scheduler.estimates.of(pod)), now_s)
        if chosen is not None:
            self.choices += 1
            book.presume(pod, chosen)
            self._presumed[pod.metadata.uid] = now_s + _PRESUMED_S
        return chosen


def routes(extender: Extender) -> list[web.RouteDef]:
    """The two verbs."""

    async def filtered(request: web.Request) -> web.Response:
        return _json(extender.filter(_ASKED.decode(await request.read())))

    async def prioritized(request: web.Request) -> web.Response:
        return _json(extender.prioritize(_ASKED.decode(await request.read())))

    return [web.post("/filter", filtered), web.post("/prioritize", prioritized)]


def _json(answer: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

"""A node's power as an extended resource, as in the HPE paper: the capacity ``wattflow.io/watts`` is what it may draw.

That is the full draw of its curve (its TDP where that is all that is known), or its cap where there is a lower one. A
pod that requests some of it is held to it by any scheduler, kube-scheduler included. What a pod really adds depends on
the node and on who is there already, so the true ledger is ours: curves and caps, not this number.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from wattflow.kube import objects
from wattflow.kube.book import Book
from wattflow.kube.client import MERGE, ApiError, Client
from wattflow.kube.power import Watts
from wattflow.kube.tenant import PREFIX

log = logging.getLogger(__name__)
RESOURCE = f"{PREFIX}watts"
# Few in a round: publishing must not crowd out bindings on a large cluster.
_EVERY_S, _MOST = 5.0, 200


@dataclass(slots=True)
class Publisher:
    """Writes each node's watts into its status where they are not there, or others."""

    client: Client
    book: Book
    watts: Watts
    written: int = 0

    def due(self) -> list[tuple[objects.Node, int]]:
        """Find nodes whose number is missing or out of date."""
        found = []
        for view in self.book.cluster.nodes.values():
            most_w = self.watts.most_w(view.node.metadata.name)
            if most_w is not None:
                # Down: a whole number that the node can really give.
                number, status = math.floor(most_w), view.node.status
                # As a set: both must be this text.
                if {str(number)} != {status.capacity.get(RESOURCE), status.allocatable.get(RESOURCE)}:
                    found.append((view.node, number))
        return found

    async def run(self, may_act: Callable[[], bool]) -> None:
        """Look again and again."""
        while True:
            # First, and then the pause: a new leader publishes at once.
            if may_act():
                for node, number in self.due()[:_MOST]:
                    await self._write(node, number)
            await asyncio.sleep(_EVERY_S)

    async def _write(self, node: objects.Node, number: int) -> None:
        amounts = {RESOURCE: str(number)}
        body = {"status": {"capacity": amounts, "allocatable": amounts}}
        path = f"/api/v1/nodes/{node.metadata.name}/status"
        try:
            await self.client.call("PATCH", path, body, content=MERGE)
            self.written += 1
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("node %s: its watts are not written: %s", node.metadata.name, error)

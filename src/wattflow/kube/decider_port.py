"""The port between the scheduler and whoever decides: nodes, load and wanted pods in, placements out.

`wattflow.kube.engine_decider.EngineDecider` fulfils it with the live engine. Amounts are those of `accounting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from wattflow.kube import accounting, objects
from wattflow.kube.grouping import NONE, Rules
from wattflow.live.protocol import Power
from wattflow.model.profile import PowerProfile


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod that wants a place.

    Attributes:
        nodes: Only these may take it now (filters that count pods); None leaves it to the standing ones.
        estimate_s: Expected runtime, None where unknown.
        rules: What whoever decides counts of other pods by itself.
    """

    pod: objects.Pod
    amounts: accounting.Amounts
    nodes: tuple[str, ...] | None = None
    estimate_s: float | None = None
    rules: Rules = NONE


class Choice(NamedTuple):
    """A pod goes to a node. Choices of one group (not 0) are carried out all or none."""

    uid: str
    node: str
    group: int = 0


class Chosen(NamedTuple):
    """Carry what one step decided, and when to ask again without an event.

    Attributes:
        sleep, wake: Nodes to put to sleep and to wake; answered by `Decider.powered`.
    """

    choices: Sequence[Choice]
    wake_at_s: float
    sleep: Sequence[str] = ()
    wake: Sequence[str] = ()


class Decider(Protocol):
    """Decides where pods go. Never blocks and does no I/O."""

    def set_node(self, node: objects.Node, allocatable: accounting.Amounts, power: PowerProfile | None) -> None:
        """Take up a node that is new or has changed."""

    def drop_node(self, name: str) -> None:
        """Forget a node; pods chosen for it are no longer held."""

    def powered(self, name: str, state: Power) -> None:
        """Note that a node is on, or asleep, now."""

    def coming_m(self, within_s: float) -> int:
        """Return the milli-cores of workflows' tasks that will likely be wanted within so many seconds."""

    def set_load(self, name: str, amounts: accounting.Amounts) -> None:
        """Tell what pods that were not chosen here use on a node, all together."""

    def want(self, wanted: Wanted) -> None:
        """Queue a pod that wants a place; the same pod again replaces the wish."""

    def past(self, pods: Sequence[objects.Pod]) -> None:
        """Note pods that ended well before we came; workflows go on after them."""

    def adopt(self, running: Sequence[tuple[Wanted, str]], now_s: float) -> set[str]:
        """Take over pods that run already; returns the uids of those held from now on as if chosen here.

        Called before anything is wanted. The others are load.
        """

    def unwant(self, uid: str) -> None:
        """Take a pod out of the queue."""

    def started(self, uid: str) -> None:
        """Note that the choice was carried out."""

    def refused(self, uid: str, until_s: float) -> None:
        """Undo a choice that could not be carried out; not before ``until_s`` again."""

    def ended(self, uid: str) -> None:
        """Note that the pod holds nothing any more."""

    def resized(self, uid: str, amounts: accounting.Amounts) -> None:
        """Note that a running pod's requests changed in place."""

    def step(self, now_s: float) -> Chosen:
        """Decide."""

    def look_ahead(self, now_s: float) -> bool:
        """Look at the steps before, when what they chose is on its way; True: another policy decides, at once."""

    def why(self, uid: str) -> str:
        """Say why a wanted pod is not placed, in one line."""

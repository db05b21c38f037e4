"""Settings by which a policy tells the engine about itself, apart from its functions."""

from __future__ import annotations

from dataclasses import dataclass

QUEUES = ("skip", "strict", "easy-backfill")
SELECTIONS = ("ordered", "best_pair")


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """Flags and offers.

    Attributes:
        queue: ``skip`` what does not fit, ``strict`` head of line, or ``easy-backfill``.
        selection: ``ordered`` by the queue, or ``best_pair`` over all waiting tasks (``largest``: Max-Min).
        dynamic: The priority changes with time and is computed anew whenever something fits.
        guarantees: Shares of the requested cores that are offered as variants; 1.0 is the plain request, 0.0 a pod
            without requests: it keeps its memory, takes no guaranteed cores and fits wherever memory does.
        frequencies: Frequency levels offered (0 is nominal); a node that lacks a level does not take that variant.
        wakes: Sleeping nodes are always among the candidates, not only when no node that is on fits.
        grouped: Equal nodes are one candidate; False shows them all.
        pods: The most attempts that a node takes (a kubelet's 110); 0 is no limit. In a live engine drivers bring the
            true number as a countable resource instead.
        samples: On 100 nodes and more only some that fit are scored, from a rotating start (`fit.enough_nodes`). A live
            engine has its ``score_limit`` instead.
        parks: In a live engine, a task that is held until a time is not tried before it, whatever happens meanwhile.
        alike: What holds a task holds all of its shape, whichever they are: the others are not asked about in the same
            instant. For policies that hold by what the nodes have, not by the task (a cap on watts). Tasks that are
            pinned, or whose estimates decide whether they fit, are still asked about one by one.
        local: The cost of a node without devices follows from the node's present state and the variant alone, not from
            the task, the time or other nodes; so costs of nodes that did not change are kept (`boards`).
    """

    queue: str = "skip"
    selection: str = "ordered"
    largest: bool = False
    dynamic: bool = False
    guarantees: tuple[float, ...] = (1.0,)
    frequencies: tuple[int, ...] = (0,)
    wakes: bool = False
    grouped: bool = True
    pods: int = 0
    samples: bool = False
    parks: bool = False
    local: bool = False
    alike: bool = False

    def __post_init__(self) -> None:
        # Checked here, not at the first decision: the engine turns
        # both names into numbers and never sees the text again.
        if self.queue not in QUEUES:
            raise ValueError(f"queue must be one of {', '.join(QUEUES)}, not {self.queue!r}")
        if self.selection not in SELECTIONS:
            raise ValueError(f"selection must be one of {', '.join(SELECTIONS)}, not {self.selection!r}")
        if not self.guarantees or any(not 0 <= g <= 1 for g in self.guarantees):
            raise ValueError(f"guarantees must be shares 0 ≤ g ≤ 1, not {self.guarantees}")

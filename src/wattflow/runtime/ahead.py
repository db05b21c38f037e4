"""Short calls are leased ahead of need, several to a processor: their round trips last longer than their runs.

From its placement until its end is told an attempt holds its processors in the engine. A call of a millisecond holds
them for ten that way, and they idle for nine. So the engine counts a function whose calls were all short lately by a
part of the processors it asks for; its node has the next call at hand when one ends, and holds it back until then
(`executors.turns`). What is known of one function is never believed of another: it is the code itself, by its hash.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec.structs import replace

from wattflow.runtime import messages as m

SHORT_S = 0.02
"""Longest call of a function that is leased ahead: whoever is placed behind a queue of them waits for little."""
ENOUGH = 10
"""Calls that must have ended before."""
FORGET = 0.9
"""Share of the longest call kept after each further one: after one of a second it takes some forty short ones."""
AHEAD = 8
"""Calls to a processor."""
KNOWN = 4096


class Ahead:
    """Which functions are short.

    Args:
        held_back: Whether nodes hold attempts back while others run; nothing is leased ahead elsewhere.
    """

    def __init__(self, held_back: bool = False) -> None:
        self.held_back = held_back
        self._calls: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def ended(self, spec: m.Task, end: m.Ended) -> None:
        """A call ended well."""
        if spec.function is None or end.started_s is None or end.ended_s is None:
            return
        count, longest_s = self._calls.get(spec.function, (0, 0.0))
        self._calls[spec.function] = (count + 1, max(FORGET * longest_s, end.ended_s - end.started_s))
        self._calls.move_to_end(spec.function)
        while len(self._calls) > KNOWN:
            self._calls.popitem(last=False)

    def counted(self, spec: m.Task) -> list[m.Variant]:
        """Tell what the engine counts a task's variants by.

        One that asks for more than a processor stays as it is: an eighth of it might fit where the whole does not.
        """
        count, longest_s = self._calls.get(spec.function or "", (0, 0.0))
        if not self.held_back or not spec.isolate or count < ENOUGH or longest_s > SHORT_S:
            return list(spec.variants)
        plain = [one.cpus <= 1 and one.gpu == 0 and not one.fpga and not one.fpgas for one in spec.variants]
        return [replace(one, cpus=one.cpus / AHEAD) if all(plain) else one for one in spec.variants]

"""The node's joules as one number that only rises, whatever meter they come from.

Counters are taken as they are; watts without a counter are integrated by the trapezoidal rule, and a hole between two
readings is bridged by the same rule: attempts ran meanwhile and have their share of it. A meter that waits for another
program or machine (``remote``) is read in a thread of its own, about once a second: whoever asks is not held up.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from wattflow.energy.meters.port import Meter, Reading, node_domains

REMOTE_EVERY_S = 1.0
"""Between two readings of a remote meter: Kepler and board controllers renew theirs in seconds."""


class NodeCounter:
    """Joules of the whole node by one meter, since it was opened.

    Attributes:
        sampled: Some of its domains have no counter: their watts are integrated.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._domains = node_domains(meter.domains)
        self.sampled = not all(domain.counter for domain in self._domains)
        self._integrated = {domain.name: 0.0 for domain in self._domains if not domain.counter}
        self._before: dict[str, tuple[float, float]] = {}
        self._thread = ThreadPoolExecutor(1, "meter") if getattr(meter, "remote", False) else None
        self._asked: Future[Reading] | None = None
        self._next_s: float | None = None

    def read_j(self, now_s: float) -> float | None:
        """Read joules by now; None where they cannot be read, or have not been read anew yet.

        Args:
            now_s: On any clock that does not go back; paces the readings of a remote meter.
        """
        reading = self.meter.read() if self._thread is None else self._from_aside(self._thread, now_s)
        return None if reading is None else self._total_j(reading)

    def _from_aside(self, thread: ThreadPoolExecutor, now_s: float) -> Reading | None:
        """Take what the thread has read, once; ask for the next when it is time. The first one is waited for: whatever
        ends before it would have no joules."""
        reading = None
        # The first reading is waited for here; later ones come from the thread.
        if self._next_s is None:
            reading, self._next_s = self.meter.read(), now_s + REMOTE_EVERY_S
        if self._asked is not None and self._asked.done():
            # Taken once: the same reading twice would look like a window without joules.
            reading, self._asked = self._asked.result(), None
        if self._asked is None and now_s >= self._next_s:
            self._asked, self._next_s = thread.submit(self.meter.read), now_s + REMOTE_EVERY_S
        return reading

    def _total_j(self, reading: Reading) -> float | None:
        total_j = 0.0
        for domain in self._domains:
            joules = reading.joules.get(domain.name) if domain.counter else self._add(domain.name, reading)
            if joules is None:
                # A part of the node is not the node.
                return None
            total_j += joules
        return total_j

    def _add(self, name: str, reading: Reading) -> float | None:
        """Integrate a sensor's watts up to this reading."""
        watts = reading.watts.get(name)
        if watts is None:
            return None
        # The first reading has nothing before it, and adds nothing.
        at_s, before_w = self._before.get(name, (reading.time_s, watts))
        self._integrated[name] += (before_w + watts) / 2 * (reading.time_s - at_s)
        self._before[name] = reading.time_s, watts
        return self._integrated[name]

    def close(self) -> None:
        """Let go of the meter, once nobody reads it."""
        if self._thread is not None:
            # Not while the thread still reads it.
            self._thread.shutdown(wait=True, cancel_futures=True)
        self.meter.close()

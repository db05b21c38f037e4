"""A recording of readings, and a meter that plays one back.

A recording is JSON lines: first the domains, then one reading a line. What was measured once can be attributed, tested
and shown again anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from wattflow.energy.meters.port import Domain, Meter, NoReading, Reading
from wattflow.model.errors import InvalidInput


class ReplayMeter:
    """Gives recorded readings one after the other; NoReading after the last."""

    def __init__(self, domains: Sequence[Domain], readings: Iterable[Reading], name: str = "replay") -> None:
        self.name = name
        self.domains = tuple(domains)
        self._readings = iter(readings)

    def read(self) -> Reading:
        reading = next(self._readings, None)
        if reading is None:
            # Not None: a recording that is over must not look like a meter that dropped out.
            raise NoReading("the recording is over")
        return reading

    def close(self) -> None:
        self._readings = iter(())

    @classmethod
    def load(cls, path: Path) -> ReplayMeter:
        """Read a file that `record` wrote."""
        lines = path.read_text().splitlines()
        try:
            about = json.loads(lines[0])
            domains = [Domain(str(d["name"]), str(d["kind"]), bool(d["counter"])) for d in about["domains"]]
            rows = [json.loads(line) for line in lines[1:]]
            readings = [Reading(float(row["time_s"]), row["joules"], row["watts"]) for row in rows]
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise InvalidInput(str(path), f"not a recording of a meter: {error!r}") from error
        return cls(domains, readings, f"replay of {about.get('meter', 'a meter')}")


def record(meter: Meter, readings: Iterable[Reading], path: Path) -> None:
    """Write a recording."""
    head = {
        "meter": meter.name,
        "domains": [{"name": d.name, "kind": d.kind, "counter": d.counter} for d in meter.domains],
    }
    lines = [json.dumps(head)]
    lines += [json.dumps({"time_s": r.time_s, "joules": dict(r.joules), "watts": dict(r.watts)}) for r in readings]
    path.write_text("\n".join(lines) + "\n")

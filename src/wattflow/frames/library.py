"""Read a frame from TOML: sections are named as the fields of `Frame`. ``docs/frames.md`` describes every key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from wattflow.files.data_folder import packaged
from wattflow.files.strict_table import Problems, StrictTable
from wattflow.files.whole import small_text
from wattflow.frames import frame as frames
from wattflow.frames.frame import Delay, Frame
from wattflow.frames.frame_rules import CHOICES, problems_of
from wattflow.model.errors import InvalidInput, unknown_name

SECTIONS: dict[str, type] = {
    "messages": frames.Messages,
    "client": frames.Client,
    "broker": frames.Broker,
    "placers": frames.Placers,
    "hosts": frames.Hosts,
    "metadata": frames.MetadataService,
    "data": frames.DataManager,
    "split": frames.Split,
    "stealing": frames.Stealing,
    "rebalancing": frames.Rebalancing,
    "speculation": frames.Speculation,
    "preemption": frames.Preemption,
    "faults": frames.FaultTolerance,
    "hints": frames.Hints,
    "barriers": frames.Barriers,
    "elasticity": frames.Elasticity,
}
"""Sections of a frame file."""


def read_frame(path: Path | str) -> Frame:
    """Read a frame file.

    Raises:
        InvalidInput: Something is wrong with it, or the frame cannot work; lists every problem with its place.
    """
    path = Path(path)
    return parse_frame(small_text(path, "frame file"), str(path))


def parse_frame(text: str, source: str) -> Frame:
    """Read a frame from TOML text."""
    try:
        data = tomllib.loads(text)
    # Arrays nested too deeply end in a RecursionError of the parser, not in its own error.
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(source, f"is not TOML: {error}") from error
    return frame_of(data, source)


def frame_of(data: Mapping[str, object], source: str) -> Frame:
    """Return a frame from a table that has been read already (a design file holds several)."""
    problems = Problems()
    frame = _read(StrictTable(data, "", problems))
    # Only a file that could be read is asked whether its frame can work.
    if len(problems) == 0:
        for problem in problems_of(frame):
            problems.add(problem.where, problem.what)
    if len(problems):
        raise InvalidInput(source, problems.listed())
    return frame


def _read(root: StrictTable) -> Frame:
    facts: dict[str, Any] = {
        "name": root.text("name"),
        "architecture": root.choice("architecture", frames.ARCHITECTURES, "centralised"),
        "about": root.text("about", ""),
        "source": root.text("source", ""),
    }
    for name, kind in SECTIONS.items():
        table = root.table(name)
        if table is not None:
            facts[name] = _section(table, name, kind)
            table.finish()
    root.finish()
    return Frame(**facts)


def _section(table: StrictTable, section: str, kind: type) -> Any:
    facts = {}
    for item in fields(kind):
        # Only what is there: what is left out keeps the default of its class.
        if table.has(item.name):
            facts[item.name] = _value(table, section, item)
    return kind(**facts)


def _value(table: StrictTable, section: str, item: Any) -> Any:
    # Types of fields are texts here: `frames.frame` puts its annotations off.
    key, kind = item.name, item.type
    default = None if item.default is MISSING else item.default
    if (section, key) in CHOICES:
        return table.choice(key, CHOICES[section, key], str(default))
    if kind == "Delay":
        return _delay(table, key)
    if kind == "bool":
        value = table.value(key)
        if not isinstance(value, bool):
            table.problem(key, f"must be true or false, not {value!r}")
            return default
        return value
    if kind == "int":
        return table.whole(key, default)
    # Seconds may carry a unit ('30s'); the ending of the key tells them from plain numbers.
    return table.duration(key, default) if key.endswith("_s") else table.number(key, default)


def _delay(table: StrictTable, key: str) -> Delay:
    """Read a duration, or a table with a distribution."""
    if not isinstance(table.value(key), Mapping):
        return Delay(table.duration(key, 0.0))
    inner = table.table(key)
    if inner is None:
        return frames.NO_DELAY
    kind = inner.choice("distribution", frames.DISTRIBUTIONS, "constant")
    if kind == "choice":
        delay = Delay(kind=kind, values_s=inner.numbers("values_s"), weights=inner.numbers("weights"))
    elif kind == "lognormal":
        delay = Delay(inner.duration("median_s"), kind, inner.number("sigma"))
    else:
        delay = Delay(inner.duration("mean_s"), kind)
    inner.finish()
    return delay


def _shipped() -> dict[str, str]:
    """Return the texts of the shipped frames, which lie one after the other; each begins with its name."""
    text = packaged("frames.txt").read_text(encoding="utf-8")
    return {part.split('"')[1]: part.rstrip("\n") + "\n" for part in re.split(r"^(?=name = )", text, flags=re.M)[1:]}


def frame_names() -> list[str]:
    """Return all frames that ship with wattflow, sorted."""
    return sorted(_shipped())


def frame_text(name: str) -> str:
    """Return a shipped frame as a file of its own."""
    shipped = _shipped()
    if name not in shipped:
        raise unknown_name(
            "frame", name, sorted(shipped), "`wattflow lab frames` lists all; a path ending in .toml is read"
        )
    return shipped[name]


def load_frame(name: str) -> Frame:
    """Return a shipped frame by name, or one from a file when the name ends in ``.toml``."""
    if name.endswith(".toml"):
        return read_frame(Path(name))
    return parse_frame(frame_text(name), f"frame {name}")

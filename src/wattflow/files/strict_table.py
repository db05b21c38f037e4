"""A TOML table that is asked for its keys one by one, and then knows which ones nobody asked for.

Every wrong value becomes a problem with its place and a stand-in is returned, so that one reading finds all of them.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from typing import Final, TypeGuard

from wattflow.model import units
from wattflow.model.errors import Problem

_MISSING: Final = object()


class Problems:
    """Problems in the order found, each once."""

    def __init__(self) -> None:
        # A dict as an ordered set: a template's mistake is found once per node that uses it.
        self.found: dict[Problem, None] = {}

    def add(self, where: str, what: str) -> None:
        self.found.setdefault(Problem(where, what))

    def __len__(self) -> int:
        return len(self.found)

    def listed(self) -> tuple[Problem, ...]:
        return tuple(self.found)


class StrictTable:
    """One table of a file.

    Attributes:
        where: Its place, such as ``nodes[2].power``.
        origins: Places of keys that come from elsewhere (a template).
    """

    def __init__(
        self,
        data: Mapping[str, object],
        where: str,
        problems: Problems,
        origins: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        self.where = where
        self.problems = problems
        self.origins = origins or {}
        self.asked: list[str] = []

    def place(self, key: str) -> str:
        """Return where a key stands in the file."""
        if key in self.origins:
            return self.origins[key]
        return f"{self.where}.{key}" if self.where else key

    def problem(self, key: str, what: str) -> None:
        self.problems.add(self.place(key) if key else self.where, what)

    def has(self, key: str) -> bool:
        self.asked.append(key)
        return key in self.data

    def value(self, key: str) -> object:
        """Return the raw value of a key; None where it is absent."""
        return self.data[key] if self.has(key) else None

    def finish(self) -> None:
        """Report the keys that were never asked for."""
        known = sorted(set(self.asked))
        for key in self.data:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
                self.problem(key, f"unknown key {key!r}; {hint}")

    def _get(self, key: str, default: object, kind: str) -> object:
        if self.has(key):
            return self.data[key]
        if default is _MISSING:
            self.problem("", f"needs {key!r} ({kind})")
        return None

    def text(self, key: str, default: str | object = _MISSING) -> str:
        value = self._get(key, default, "a text")
        if isinstance(value, str):
            return value
        if value is not None:
            self.problem(key, f"must be a text, not {value!r}")
        return default if isinstance(default, str) else ""

    def choice(self, key: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.text(key, default)
        if value in allowed:
            return value
        near = difflib.get_close_matches(value, allowed, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(allowed)}"
        self.problem(key, f"{value!r} is not allowed; {hint}")
        return default

    def number(self, key: str, default: float | object = _MISSING) -> float:
        value = self._get(key, default, "a number")
        if is_number(value):
            return float(value)
        if value is not None:
            self.problem(key, f"must be a number, not {value!r}")
        # A stand-in that most uses can go on with; the problem is noted.
        return float(default) if is_number(default) else 1.0

    def whole(self, key: str, default: int | object = _MISSING) -> int:
        value = self._get(key, default, "a whole number")
        # `true` is an int in Python.
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if value is not None:
            self.problem(key, f"must be a whole number, not {value!r}")
        return default if isinstance(default, int) else 1

    def maybe_number(self, key: str) -> float | None:
        return self.number(key) if self.has(key) else None

    def duration(self, key: str, default: float | object = _MISSING) -> float:
        return self._parsed(key, default, units.duration_s, "a duration such as '30s'")

    def maybe_duration(self, key: str) -> float | None:
        return self.duration(key) if self.has(key) else None

    def size(self, key: str, default: int | object = _MISSING) -> int:
        return int(self._parsed(key, default, units.size_bytes, "a size such as '80 GiB'"))

    def bandwidth(self, key: str, default: float | object = _MISSING) -> float:
        return self._parsed(key, default, bandwidth_bytes_per_s, "a bandwidth such as '10 Gbit/s'")

    def _parsed(
        self, key: str, default: float | object, parse: Callable[[str | int | float], float], kind: str
    ) -> float:
        value = self._get(key, default, kind)
        if value is not None:
            if not isinstance(value, str) and not is_number(value):
                self.problem(key, f"must be {kind}, not {value!r}")
            else:
                try:
                    return parse(value)
                except (ValueError, OverflowError) as error:
                    self.problem(key, str(error))
        return float(default) if is_number(default) else 1.0

    def numbers(self, key: str) -> tuple[float, ...]:
        """Read a list of finite numbers; empty where it is absent or wrong."""
        value = self.value(key)
        if value is None:
            return ()
        # TOML knows inf and nan, which no list here may hold.
        if not isinstance(value, list) or not all(is_number(item) and math.isfinite(item) for item in value):
            self.problem(key, "must be a list of finite numbers")
            return ()
        return tuple(float(item) for item in value)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.value(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.problem(key, "must be a list of texts")
            return ()
        return tuple(value)

    def table(self, key: str) -> StrictTable | None:
        """Return a table below this one; None where it is absent or not a table."""
        value = self.value(key)
        if isinstance(value, Mapping):
            return StrictTable(value, self.place(key), self.problems)
        if value is not None:
            self.problem(key, f"must be a table, not {value!r}")
        return None

    def tables(self, key: str) -> list[StrictTable]:
        """Return the tables of an array of tables."""
        value = self.value(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            self.problem(key, f"must be an array of tables: write [[{self.place(key)}]]")
            return []
        return [StrictTable(item, f"{self.place(key)}[{i}]", self.problems) for i, item in enumerate(value)]

    def named_tables(self, key: str) -> dict[str, StrictTable]:
        """Return the tables below this one by name, such as ``[zones.north]``."""
        below = self.table(key)
        if below is None:
            return {}
        found = {name: below.table(name) for name in below.data}
        return {name: table for name, table in found.items() if table is not None}


def is_number(value: object) -> TypeGuard[int | float]:
    """Tell whether a TOML value is a number (NaN is not)."""
    # Infinity is a number of TOML and of some keys (`mtbf`).
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def bandwidth_bytes_per_s(text: str | int | float) -> float:
    """Parse ``"10 Gbit/s"``, ``"1.25 GB/s"`` or a plain number of bytes a second."""
    if isinstance(text, int | float):
        return float(text)
    amount = text.strip().removesuffix("/s").strip()
    # Without "/s" it is a size, not a bandwidth.
    if amount == text.strip():
        raise ValueError(f"{text!r} is not a bandwidth; write for example '10 Gbit/s' or '1.25 GB/s'")
    if amount.endswith("bit"):
        number = amount.removesuffix("bit").rstrip()
        prefix = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(number[-1:])
        try:
            return float(number[:-1] if prefix else number) * (prefix or 1.0) / 8
        except ValueError:
            raise ValueError(f"{text!r} is not a bandwidth; write for example '10 Gbit/s'") from None
    return float(units.size_bytes(amount))

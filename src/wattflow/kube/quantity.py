"""Kubernetes quantities: "1500m", "2Gi", "1e3". Whole numbers inside, rounded up as the API server's clients do."""

from __future__ import annotations

import functools
import re
from decimal import Decimal

from wattflow.model.errors import InvalidInput

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal("1e3"), "M": Decimal("1e6"), "G": Decimal("1e9"), "T": Decimal("1e12"), "P": Decimal("1e15"),
    "E": Decimal("1e18"),
}  # fmt: skip
# Longer ones would make an exact number of as many digits; the API's own are far shorter.
_MOST_TEXT = 64
MOST = 2**60
"""Beyond any machine. Larger quantities count as this: sums over a pod's containers must stay within 64 bits."""
# ASCII: `\d` would take digits of every script. Exponents of two digits at most, since 10**99 is
# beyond `MOST` anyway.
_FORM = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d{1,2})?", re.ASCII)


@functools.lru_cache(maxsize=65536)
# Few different texts stand in tens of thousands of pods.
def exact(text: str) -> Decimal:
    """Return the quantity as an exact number. Raises InvalidInput for what the API would not take."""
    found = _FORM.fullmatch(text) if len(text) <= _MOST_TEXT else None
    if found is None:
        raise InvalidInput("quantity", f"{text[:_MOST_TEXT]!r} is not a number with a suffix such as m, k, Mi or Gi")
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix in _BINARY:
        return number * _BINARY[suffix]
    if suffix in _DECIMAL:
        return number * _DECIMAL[suffix]
    return number * Decimal(10) ** int(suffix[1:])


@functools.lru_cache(maxsize=65536)
def whole(text: str) -> int:
    """Return the quantity in whole units (bytes, pieces), rounded up."""
    return _up(exact(text))


@functools.lru_cache(maxsize=65536)
def milli(text: str) -> int:
    """Return the quantity in thousandths (milli-cores), rounded up."""
    return _up(exact(text) * 1000)


def _up(number: Decimal) -> int:
    number = max(Decimal(-MOST), min(Decimal(MOST), number))
    floor = int(number // 1)
    # `//` of Decimal truncates towards zero, so only positive numbers need one more.
    return floor if floor == number else floor + (number > 0)

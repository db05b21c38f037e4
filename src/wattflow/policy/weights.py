"""The rule of the learned policy: its numbers in one vector, what they mean, and the file that they come from.

Five weighted sums of relative facts (`placing`), most of whose weights are 0: the shipped rule has twelve that are not.
A file is an ``.npz`` of plain arrays, read without pickle: ``theta`` (the vector), ``layout`` (the sizes below) and
``card`` (JSON: data, seeds, seconds and joules spent). ``WATTFLOW_WEIGHTS`` names another file than the shipped one.
"""

from __future__ import annotations

import functools
import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.model.errors import InvalidInput
from wattflow.policy import placing

Floats = NDArray[np.float64]

PLACE = 0
"""A weight for each feature of a candidate, then the constant; the other heads lie in the same way."""
HASTE = PLACE + placing.N + 1
ORDER = HASTE + placing.AROUND_N + 1
DOZE = ORDER + placing.ORDER_N + 1
SLEEP = DOZE + placing.DOZE_N + 1
SIZE = SLEEP + placing.CLASS_N + 1
LAYOUT = (placing.N, placing.AROUND_N, placing.ORDER_N, placing.DOZE_N, placing.CLASS_N)
"""Numbers that a file must agree with; those of a network, which it was once, have one number more."""
ENVIRONMENT = "WATTFLOW_WEIGHTS"


def shipped() -> Path:
    """Find the file in the package: distilled from a network that every application helped to train."""
    return Path(str(files("wattflow") / "data" / "learned" / "weights.npz"))


def heads(theta: Any) -> dict[str, tuple[tuple[str, ...], Any]]:
    """List names and weights of each head, the constant last."""
    return {
        "f": ((*placing.AROUND, *placing.CANDIDATE), theta[PLACE:HASTE]),
        "h": (placing.AROUND, theta[HASTE:ORDER]),
        "o": (placing.ORDER, theta[ORDER:DOZE]),
        "n": (placing.DOZE, theta[DOZE:SLEEP]),
        "c": (placing.CLASS, theta[SLEEP:SIZE]),
    }


MEANINGS = {
    "f": "price of a candidate × e^f",
    "h": "likely seconds until a busy node has room × e^h",
    "o": "latest start + o × critical path",
    "n": "an idle node's seconds before sleep × e^2n",
    "c": "and those of its class × e^1.5c",
}


def formula(theta: Any) -> str:
    """Write the rule as text; heads without a term are left out."""
    lines = []
    for letter, (names, values) in heads(theta).items():
        text = _sum((*names, ""), values)
        if text:
            lines.append(f"    {MEANINGS[letter]},\n      {letter} = {text}")
    return "\n".join(lines)


def _sum(names: Sequence[str], values: Any) -> str:
    found = sorted(zip(np.asarray(values).tolist(), names, strict=True), key=lambda pair: -abs(pair[0]))
    parts = [
        f"{'−' if value < 0 else '+'} {abs(value):g}{' · ' if name else ''}{name}" for value, name in found if value
    ]
    return " ".join(parts).removeprefix("+ ")


def save(path: Path, theta: Floats, card: dict[str, Any]) -> None:
    """Write weights, whole or not at all."""
    from wattflow.files.whole import whole_file

    with whole_file(path) as draft, draft.open("wb") as stream:
        np.savez(
            stream,
            theta=np.asarray(theta, np.float64),
            layout=np.array(LAYOUT, np.int64),
            card=np.array(json.dumps(card)),
        )


def load(path: Path) -> tuple[Floats, dict[str, Any]]:
    """Read weights and their card.

    Raises:
        InvalidInput: No such file, one that is broken, or weights of another layout.
    """
    parts = _parts(path)
    layout, theta = parts["layout"], parts["theta"]
    sizes = tuple(layout.tolist()) if layout.dtype.kind in "iu" and layout.ndim == 1 else ()
    if sizes != LAYOUT:
        told = f"the layout {sizes}" if sizes else "a layout that is no list of whole numbers"
        raise _unusable(path, f"has weights of {told}; this version reads {LAYOUT}")
    if theta.dtype.kind != "f" or theta.shape != (SIZE,):
        raise _unusable(path, f"theta is {theta.dtype} of shape {theta.shape}, not {SIZE} numbers")
    bad = int((~np.isfinite(theta)).sum())
    if bad:
        raise _unusable(path, f"{bad} of its {len(theta)} weights are no finite numbers")
    return np.ascontiguousarray(theta, np.float64), _card(path, parts["card"])


def _parts(path: Path) -> dict[str, Any]:
    """The three arrays of a file. What numpy says of a broken one, and to load it with pickle, helps nobody here."""
    try:
        with path.open("rb") as stream:
            content = np.load(stream, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                raise _unusable(path, "is a single array (.npy), not an .npz with theta, layout and card")
            absent = [name for name in ("theta", "layout", "card") if name not in content.files]
            if absent:
                raise _unusable(path, f"lacks {', '.join(absent)}; an .npz of weights has theta, layout and card")
            return {name: content[name] for name in ("theta", "layout", "card")}
    except OSError as error:
        raise _unusable(path, error.strerror or "cannot be read") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise _unusable(path, "is no .npz of plain arrays, or only a part of one") from error


def _card(path: Path, text: Any) -> dict[str, Any]:
    try:
        card = json.loads(str(text))
    except ValueError:
        card = None
    if not isinstance(card, dict):
        raise _unusable(path, "its card is no JSON object")
    return card


def _unusable(path: Path, what: str) -> InvalidInput:
    return InvalidInput(
        str(path),
        f"holds no weights of the learned policy: {what}; `wattflow model learn` and `make train` write such files",
    )


@functools.cache
def _loaded(path: str) -> Floats:
    return load(Path(path))[0]


@functools.cache  # a race prepares a policy hundreds of times, and a look at the file system takes longer than that
def _shipped() -> Floats:
    return _loaded(str(shipped())) if shipped().is_file() else np.zeros(SIZE)


def check() -> None:
    """Raise InvalidInput where the file in use is broken: a server asks when it starts, not at its first task."""
    current()


def current() -> Floats:
    """Return the weights in use: those of the file that the environment names, else the shipped ones."""
    named = os.environ.get(ENVIRONMENT)
    return _loaded(named) if named else _shipped()

"""Weights of the learned policy: how they lie in one vector, and the file that they come from.

A file is an ``.npz`` of plain arrays, read without pickle: ``theta`` (the vector), ``layout`` (the sizes below) and
``card`` (JSON: data, seeds, seconds and joules spent). ``WATTFLOW_WEIGHTS`` names another file than the shipped one.
"""

from __future__ import annotations

import functools
import json
import os
import zipfile
import zlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.model.errors import InvalidInput
from wattflow.policy import placing

Floats = NDArray[np.float64]

HIDDEN = 8
WIDTH = HIDDEN + 1
"""Hidden units and the linear part."""
PLACE = 0
"""A row of WIDTH for each feature, one of biases, then the weight of each hidden unit in the sum."""
HASTE = PLACE + (placing.N + 1) * WIDTH + HIDDEN
ORDER = HASTE + placing.AROUND_N + 1
DOZE = ORDER + placing.ORDER_N + 1
SLEEP = DOZE + placing.DOZE_N + 1
SIZE = SLEEP + 9
LAYOUT = (placing.N, HIDDEN, placing.AROUND_N, placing.ORDER_N, placing.DOZE_N, 9)
"""Sizes that a file of weights must agree with."""
ENVIRONMENT = "WATTFLOW_WEIGHTS"


def shipped() -> Path:
    """Find the file in the package, which every application helped to train."""
    return Path(str(files("wattflow") / "data" / "learned" / "weights.npz"))


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
    """Weights and their card.

    Raises:
        InvalidInput: No such file, one that is broken, or weights of another network.
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
        str(path), f"holds no weights of the learned policy: {what}; `wattflow learn` and `make train` write such files"
    )


@functools.cache
def _loaded(path: str) -> Floats:
    return load(Path(path))[0]


def check() -> None:
    """Raise InvalidInput where the file in use is broken: a server asks when it starts, not at its first task."""
    current()


def current() -> Floats:
    """The weights in use: of the file that the environment names, else the shipped ones; zeros where there are none."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return _loaded(named)
    return _loaded(str(shipped())) if shipped().is_file() else np.zeros(SIZE)

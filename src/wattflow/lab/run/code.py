"""The version of the code that decides results: results of other code are not taken for this one's."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

SOURCES = (
    "model",
    "files",
    "traces",
    "generate",
    "clusters",
    "kernel",
    "engine",
    "policy",
    "plan",
    "sim",
    "frames",
    "lab/figures",
    "lab/run",
    "lab/explore/point.py",
)
"""Packages and modules whose code decides what a run gives."""


@functools.cache
def code_hash() -> str:
    """Hash of the sources that decide a result."""
    import wattflow

    home = Path(wattflow.__file__).parent
    digest = hashlib.sha256(wattflow.__version__.encode())
    # Every source, comments included: a hash that is too careful only costs a run, one that is not would mix results.
    for name in SOURCES:
        where = home / name
        for path in [where] if where.is_file() else sorted(where.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]

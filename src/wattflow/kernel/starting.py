"""Keep numba from loading what it need not have to run code that is compiled already.

To know whether there is a BLAS numba imports ``scipy.linalg``, a quarter of a second, before the first function of a
process is compiled or loaded from the cache. None of ours calls it. Here numba is told that it is there where scipy is
installed, and imports it itself, as it always does, when it compiles a function that uses it.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any


def postpone_linear_algebra() -> None:
    """Have numba look for scipy instead of importing it; called before the first function is compiled or loaded."""
    if "numba.np.arraymath" in sys.modules or "scipy.linalg" in sys.modules:
        return
    if importlib.util.find_spec("scipy") is None:
        return
    linalg: Any = importlib.import_module("numba.np.linalg")
    usual = getattr(linalg, "ensure_blas", None)
    if usual is None:  # another numba: it loads what it likes
        return
    linalg.ensure_blas = lambda: None
    try:
        arrays: Any = importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = usual
    # The module has bound the stand-in by name: functions that do need it must find the true one.
    if hasattr(arrays, "ensure_blas"):
        arrays.ensure_blas = usual

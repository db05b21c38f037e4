"""Compiled functions of the predictors: numba's, kept on disk wherever something can be written."""

from __future__ import annotations

import contextlib
from typing import Any

import numba


def compiled(function: Any) -> Any:
    """Compile a function when it is first used.

    What numba makes is kept for the next process. Where no folder can be written (a package in an image that is read
    only, a user without a home) numba would refuse to load such a function at all; here it is compiled anew instead.
    """
    # numpy's rules for division: 0/0 is NaN here, not an exception.
    dispatcher = numba.njit(error_model="numpy")(function)
    with contextlib.suppress(RuntimeError, AttributeError):  # no folder; no compilation (NUMBA_DISABLE_JIT)
        dispatcher.enable_caching()
    return dispatcher

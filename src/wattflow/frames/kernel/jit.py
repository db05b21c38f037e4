"""How frame code is compiled: as the engine's, with a cache folder that also hashes the sources of this package.

Only the outermost functions are kept on disk; what they call is compiled into them.
"""

from __future__ import annotations

import functools
from typing import Any

from wattflow.kernel import jit as engine_jit

COMPILED = engine_jit.COMPILED


@functools.cache
def folder() -> str:
    """Return where compiled frame code belongs."""
    return engine_jit.cache_folder("kernel", "frames/kernel")


jit = engine_jit.inner
"""For every function of this package that only compiled code calls."""


def compiled(signature: Any, function: Any) -> Any:
    """Compile a function now and keep it on disk."""
    return engine_jit.compiled(signature, function, folder=folder())

"""How a policy's helper functions are compiled: as the engine's are, in a cache that notices changes in ours."""

from __future__ import annotations

import functools
from typing import Any

from wattflow.kernel import jit as kernel_jit


@functools.cache
def folder() -> str:
    """Return where compiled code of policies belongs: named by all sources that can take part."""
    # Sources of the engine, too: its functions are compiled into a policy's.
    return kernel_jit.cache_folder("kernel", "engine", "policy")


def jit(function: Any) -> Any:
    """Compile a helper of a policy when it is first used; the identity when compilation is switched off."""
    return kernel_jit.jit(function, folder())

"""How a policy's helper functions are compiled: as the engine's are, in a cache that notices changes in ours."""

from __future__ import annotations

import functools
from typing import Any

import numba

from wattflow.kernel import jit as kernel_jit

_config: Any = numba.config


@functools.cache
def folder() -> str:
    """Where compiled code of policies belongs: named by all sources that can take part."""
    return kernel_jit.cache_folder("kernel", "engine", "policy")


@functools.cache
def _engine_folder() -> str:
    return kernel_jit.cache_folder("kernel", "engine", "sim")


def jit(function: Any) -> Any:
    """Compile a helper of a policy when it is first used; the identity when compilation is switched off."""
    usual = _config.CACHE_DIR
    try:
        if kernel_jit.COMPILED and usual == _engine_folder():
            _config.CACHE_DIR = folder()
        return kernel_jit.jit(function)
    finally:
        _config.CACHE_DIR = usual

"""Random numbers of compiled code: splitmix64, as a stream and as a function of a counter.

Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, doi:10.1145/2660193.2660195.
The stream's state is one 64-bit word that grows by a fixed step; what is drawn is the word, scrambled.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattflow.kernel.jit import inner

STEP = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xBF58476D1CE4E5B9)
_C = np.uint64(0x94D049BB133111EB)
_WORD = 0xFFFFFFFFFFFFFFFF


@inner
def mix(x):
    """Scramble 64 bits (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * _B
    x = (x ^ (x >> np.uint64(27))) * _C
    return x ^ (x >> np.uint64(31))


@inner
def unit(bits):
    """Return the upper 53 bits as a number in (0, 1]: never 0, so that its logarithm is finite; 1 once in 2⁵³ draws."""
    return (np.int64(bits >> np.uint64(11)) + 0.5) / 9007199254740992.0


@inner
def hashed(a, b):
    """64 bits that depend on two whole numbers alone."""
    return mix(mix(np.uint64(a) * STEP + _B) ^ (np.uint64(b) * _C + STEP))


@inner
def at_counter(seed, a, b, salt):
    """Return a number in (0, 1] that depends on its arguments alone, whatever was drawn before."""
    x = np.uint64(seed) * STEP + np.uint64(a) * _B + np.uint64(b) * _C + np.uint64(salt) * STEP
    x = mix(x + STEP)
    return unit(mix(x + STEP))


def stream(seed: int) -> int:
    """Return the first word of a seed's stream; neighbouring seeds begin far apart."""
    # In Python's whole numbers: numpy would warn of the wrap-around that is meant.
    x = (seed * int(STEP) + int(_B)) & _WORD
    x = ((x ^ (x >> 30)) * int(_B)) & _WORD
    x = ((x ^ (x >> 27)) * int(_C)) & _WORD
    return x ^ (x >> 31)


def hashed_each(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`hashed` of the elements of two arrays, without its compilation."""
    scramble = getattr(mix, "py_func", mix)
    mixed: NDArray[np.uint64] = scramble(scramble(a * STEP + _B) ^ (b * _C + STEP))
    return mixed

"""Set attention: a candidate seen among the others, the larger variant of the learned policy's scorer. Compiled.

One layer with one head (Vaswani et al., arXiv:1706.03762). Of each candidate's own features x a question Qx, a key Kx
and a value Vx of `SIZE_OF` numbers are made; candidate c sees the others' values weighed by softmax over c' of
Qx_c · Kx_c' / 2, and u · softsign of what it sees is added to the place head. u = 0 is the scorer without attention,
to the bit. Only the first `ROWS` candidates of a decision take part; the rest keep what the network makes of them.
O(rows²) per task and variant.
"""

from __future__ import annotations

import math

from wattflow.policy import placing
from wattflow.policy.jit import jit

SIZE_OF = 4
"""Numbers of a question, a key or a value."""
ROWS = 64
IN = placing.N - placing.AROUND_N
"""Features of a candidate by itself."""
THREE = 3 * SIZE_OF
OUT = (IN + 1) * THREE
"""Where u begins: behind a row of `THREE` for each feature and one of biases."""
SIZE = OUT + SIZE_OF
SLOT = 1 + THREE
"""What is kept of a candidate: the place head's sum, question, key, value."""


@jit
def keep(state, first, weight, slot, f):
    """Note a candidate whose features are in the memory from ``first`` on."""
    memory = state.memory
    memory[slot] = f
    for i in range(THREE):
        memory[slot + 1 + i] = memory[weight + IN * THREE + i]
    for j in range(IN):
        x = memory[first + placing.AROUND_N + j]
        at = weight + j * THREE
        for i in range(THREE):
            memory[slot + 1 + i] += memory[at + i] * x


@jit
def seen(state, slots, kept, row, weight):
    """The place head's sum for a kept candidate, with what it sees of the others."""
    memory = state.memory
    mine = slots + row * SLOT
    most = -math.inf
    for other in range(kept):
        most = max(most, _match(memory, mine, slots + other * SLOT))
    total = 0.0
    a = b = c = d = 0.0
    for other in range(kept):
        theirs = slots + other * SLOT
        share = math.exp(_match(memory, mine, theirs) - most)
        at = theirs + 1 + 2 * SIZE_OF
        total += share
        a += share * memory[at]
        b += share * memory[at + 1]
        c += share * memory[at + 2]
        d += share * memory[at + 3]
    u = weight + OUT
    found = memory[u] * _soft(a / total) + memory[u + 1] * _soft(b / total)
    return memory[mine] + found + memory[u + 2] * _soft(c / total) + memory[u + 3] * _soft(d / total)


@jit
def _match(memory, mine, theirs):
    """A question and a key, over the root of their length."""
    question, key = mine + 1, theirs + 1 + SIZE_OF
    total = memory[question] * memory[key] + memory[question + 1] * memory[key + 1]
    return 0.5 * (total + memory[question + 2] * memory[key + 2] + memory[question + 3] * memory[key + 3])


@jit
def _soft(x):
    return x / (1.0 + abs(x))

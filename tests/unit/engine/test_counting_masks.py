"""Masks of rules that count tasks, kept up to date change by change, against what every node's counts say anew."""

from __future__ import annotations

import random

import numpy as np
import pytest

from reference.hand import node, nodes, tasks
from wattflow.engine import tallies
from wattflow.engine.build import build_state
from wattflow.engine.tables import CONDITIONS, MASK_ROWS, TERMS, TOPOLOGIES, State
from wattflow.engine.tallies import APART, SPREAD, TOGETHER
from wattflow.kernel import jit
from wattflow.kernel.records import record_table

RACKS = [0, 0, 1, 1, 2, -1, 2]
"""Of each node; the last but one has no label."""
BASE = [True, True, True, False, False, True, True]
"""What the nodes alone allow: node 4 of the third rack is out, and of the second half."""
NODE, RACK = -1, 0


@jit.jit
def change(state, term, node, more):
    tallies.change(state, term, node, more)


def word(places: list[bool]) -> int:
    return sum(1 << at for at, here in enumerate(places) if here)


def ruled(*asked: tuple[int, int, int, int]) -> State:
    """Row 1 of the masks asks these (kind, topology, own, skew), each of a counter of its own."""
    state = build_state(tasks([1.0]), nodes(*[node()] * len(RACKS)))
    conditions, terms, rows = (record_table(kind, 4) for kind in (CONDITIONS, TERMS, MASK_ROWS))
    domains = np.full((len(RACKS), TOPOLOGIES), -1, np.int32)
    domains[:, RACK] = RACKS
    for number, (kind, topology, own, skew) in enumerate(asked, 1):
        row = conditions[number]
        row.kind, row.term, row.row, row.own, row.skew = kind, number, 1, own, skew
        row.next_row = number + 1 if number < len(asked) else 0
        terms.topology[number], terms.first[number], terms.condition[number] = topology, 10 * number, number
        terms.domains[number] = 3 if topology == RACK else len(RACKS)
    rows.condition[1] = 1
    racks = np.array([[word([rack == each for each in RACKS])] for rack in range(3)], np.uint64)
    state.replace(
        conditions=conditions, terms=terms, mask_rows=rows, domains=domains, domain_bits=racks,
        tallies=np.zeros(40, np.int32), masks=np.zeros((2, 1), np.uint64),
        bases=np.array([[0], [word(BASE)]], np.uint64),
    )  # fmt: skip
    tallies.refresh(state.handle(), 1)
    return state


def allowed(placed: list[list[int]], asked: tuple[tuple[int, int, int, int], ...]) -> list[bool]:
    """By the docs: what the node allows, and for each condition what is in its domain."""
    found = list(BASE)
    for here, (kind, topology, own, skew) in zip(placed, asked, strict=True):
        domain = [n if topology == NODE else RACKS[n] for n in range(len(RACKS))]
        count = {d: sum(here[n] for n in range(len(RACKS)) if domain[n] == d) for d in set(domain) if d >= 0}
        counted = [n for n in range(len(RACKS)) if domain[n] >= 0]
        fewest = min((count[domain[n]] for n in counted if BASE[n]), default=0)
        for n in range(len(RACKS)):
            if n not in counted:
                holds = kind == APART
            elif kind == APART:
                holds = count[domain[n]] == 0
            elif kind == TOGETHER:
                holds = count[domain[n]] > 0 or (own == 1 and not any(here[m] for m in counted))
            else:
                holds = count[domain[n]] + own - fewest <= skew
            found[n] = found[n] and holds
    return found


@pytest.mark.parametrize(
    "asked",
    [
        ((APART, NODE, 0, 0),), ((APART, RACK, 0, 0),), ((TOGETHER, NODE, 1, 0),), ((TOGETHER, RACK, 1, 0),),
        ((TOGETHER, RACK, 0, 0),), ((SPREAD, NODE, 1, 1),), ((SPREAD, RACK, 1, 1),), ((SPREAD, RACK, 0, 2),),
        ((SPREAD, RACK, 1, 1), (APART, NODE, 0, 0)), ((TOGETHER, RACK, 1, 0), (SPREAD, NODE, 1, 2)),
        ((APART, RACK, 0, 0), (TOGETHER, NODE, 1, 0), (SPREAD, RACK, 1, 2)),
    ],
)  # fmt: skip
def test_masks_follow_every_change_of_a_counter(asked: tuple[tuple[int, int, int, int], ...]) -> None:
    state, rng = ruled(*asked), random.Random(len(asked))
    placed = [[0] * len(RACKS) for _ in asked]
    before = allowed(placed, asked)
    assert int(state.masks[1, 0]) == word(before)
    for _ in range(120):
        number, n = rng.randrange(len(asked)), rng.randrange(len(RACKS))
        more = 1 if placed[number][n] == 0 or rng.random() < 0.5 else -1
        placed[number][n] += more
        epoch = int(state.clock.epoch[0])
        change(state.handle(), number + 1, n, more)
        now = allowed(placed, asked)
        assert int(state.masks[1, 0]) == word(now)
        rose = any(is_ and not was for was, is_ in zip(before, now, strict=True))
        assert (int(state.clock.epoch[0]) > epoch) is rose  # a bit that rises is worth a look
        assert [int(tallies.broken(state.handle(), 1, k)) == 0 for k in range(len(RACKS)) if BASE[k]] == [
            now[k] for k in range(len(RACKS)) if BASE[k]
        ]
        before = now

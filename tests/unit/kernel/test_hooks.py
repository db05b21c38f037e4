"""Hooks: the body is chosen by the tables' class, compiled and uncompiled alike."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.engine import decide, life
from wattflow.kernel import hooks, jit
from wattflow.kernel.handle import Tables
from wattflow.kernel.hooks import hook
from wattflow.kernel.jit import inner
from wattflow.kernel.records import record_table
from wattflow.live import hand  # noqa: F401  (it brings the hand's bodies)
from wattflow.live.candidate_rows import Ask
from wattflow.sim import kernel  # noqa: F401  (it brings the World's bodies)
from wattflow.sim.world import World

ROW = np.dtype([("n", "i8"), ("j", "f8")])


class Own(Tables):
    """Tables with a body of their own."""

    __slots__ = ("rows",)
    NAMES = ("rows",)


class Heir(Own):
    """Tables that take over the body of the class above."""

    __slots__ = ()


class Other(Tables):
    """Tables without one."""

    __slots__ = ("rows",)
    NAMES = ("rows",)


@hook
def weight(state, tables, by):
    return 1.0 * by


@weight.of(Own)
@inner
def _weight(state, tables, by):
    tables.rows[0].n += 1
    return 10.0 * by


@inner
def _twice(state, tables):
    return weight(state, tables, 1.0) + weight(state, tables, 2.0)


@jit.jit
def with_tables(state, tables):
    return _twice(state, tables)


@jit.jit
def without(state):
    return _twice(state, None)


@pytest.mark.parametrize(("kind", "expected", "calls"), [(Own, 30.0, 2), (Heir, 30.0, 2), (Other, 3.0, 0)])
def test_a_body_goes_by_class_and_its_heirs_have_it_too(kind: type[Tables], expected: float, calls: int) -> None:
    state, tables = Other(rows=record_table(ROW, 1)), kind(rows=record_table(ROW, 1))
    assert with_tables(state.handle(), tables.handle()) == expected
    assert tables.rows.n[0] == calls


def test_without_tables_the_declared_body_is_meant() -> None:
    assert without(Other(rows=record_table(ROW, 1)).handle()) == 3.0


def test_a_body_with_other_parameters_is_refused() -> None:
    with pytest.raises(TypeError, match=r"weight is declared with \['state', 'tables', 'by'\], its body has"):
        weight.of(Other)(lambda state, tables: 0.0)


@pytest.mark.parametrize(("module", "kind"), [(life, World), (decide, Ask)])
def test_every_hook_of_the_engine_has_the_body_that_its_driver_needs(module: object, kind: type) -> None:
    """A body that is forgotten would silently be the live engine's, which writes where a World has nothing."""
    declared = [one for one in vars(module).values() if hasattr(one, "of") and hasattr(one, "bodies")]
    assert declared
    missing = [one.__name__ for one in declared if hooks.class_name(kind) not in hooks.bodies_of(one)]
    assert not missing

"""Tables in a file: the same bytes back, and one clear message for any other file."""

from __future__ import annotations

import io
import zipfile
from typing import ClassVar

import numpy as np
import pytest

from wattflow.kernel import records
from wattflow.kernel.handle import Tables
from wattflow.kernel.records import record_table
from wattflow.model.errors import InvalidInput
from wattflow.sim.simulate import Simulation
from wattflow.testing.sample_states import sample_states


class Small(Tables):
    """One table for these tests."""

    __slots__ = ("rows",)
    NAMES = ("rows",)


def small(fields: str = "i8") -> Small:
    return Small(rows=record_table(np.dtype([("a", fields)]), 3))


def test_a_state_comes_back_byte_for_byte_and_goes_on() -> None:
    sample = sample_states()[1]
    run = Simulation(sample.workload, sample.cluster, "least-energy", seed=2)
    run.advance(until_s=4.0)
    state = records.read(io.BytesIO(records.dump(run.state)), run.state)
    world = records.read(io.BytesIO(records.dump(run.world)), run.world)
    for name in state.NAMES:
        assert getattr(state, name).tobytes() == getattr(run.state, name).tobytes()
        assert getattr(state, name).dtype == getattr(run.state, name).dtype
    expected = run.run().attempts.tobytes()
    again = Simulation(sample.workload, sample.cluster, "least-energy", seed=2)
    again.state, again.world = state, world
    assert again.run().attempts.tobytes() == expected


def test_no_pickle_is_in_the_file() -> None:
    with np.load(io.BytesIO(records.dump(small())), allow_pickle=False) as archive:
        assert archive["rows"].tolist() == [(0,)] * 3


class Later(Tables):
    """The table of `Small` as a later version has it: columns came, padding went, one is wider; another table came."""

    __slots__ = ("more", "rows")
    NAMES = ("rows", "more")
    DEFAULTS: ClassVar[dict[str, float]] = {"rows.end": np.nan}


Later.__name__ = "Small"


def saved(*fields: tuple[str, str]) -> io.BytesIO:
    """A file of `Small` with these columns, its rows 1, 2, 3."""
    made = Small(rows=record_table(np.dtype(list(fields)), 3))
    for name, _ in fields:
        made.rows[name] = [1, 2, 3]
    return io.BytesIO(records.dump(made))


def later() -> Later:
    fields = np.dtype([("end", "f8"), ("a", "i8"), ("n", "i4")])
    return Later(rows=record_table(fields, 1), more=np.full(2, 7.0))


def test_a_file_of_an_earlier_layout_is_read_by_column_name() -> None:
    read = records.read(saved(("a", "i4"), ("unused", "i4")), later())
    assert read.rows.a.tolist() == [1, 2, 3] and read.rows.n.tolist() == [0, 0, 0]
    assert np.isnan(read.rows.end).all() and read.more.tolist() == [7.0, 7.0]
    assert records.read(io.BytesIO(records.dump(read)), later()).rows.tobytes() == read.rows.tobytes()


def test_a_column_that_would_be_lost_or_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="its table rows has columns that this version does not know: level"):
        records.read(saved(("a", "i8"), ("level", "i4")), later())
    with pytest.raises(InvalidInput, match="its table rows has columns of another type: n"):
        records.read(saved(("a", "i8"), ("n", "i8")), later())
    with pytest.raises(InvalidInput, match="it has tables that this version does not know: more"):
        records.read(io.BytesIO(records.dump(later())), Small(rows=later().rows))


def test_tables_of_another_kind_are_refused_with_both_named() -> None:
    sample = sample_states()[1]
    state = Simulation(sample.workload, sample.cluster, "fifo").state
    with pytest.raises(InvalidInput, match=r"its tables are 'Small 1 .*this version reads State 1"):
        records.read(io.BytesIO(records.dump(small())), state)


@pytest.mark.parametrize("cut", [10, 200, -30])
def test_a_damaged_file_is_refused(cut: int) -> None:
    whole = records.dump(small())
    with pytest.raises(InvalidInput, match="it is damaged"):
        records.read(io.BytesIO(whole[:cut]), small())


def test_another_archive_is_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.txt", "x")
    buffer.seek(0)
    with pytest.raises(InvalidInput, match="no tables of wattflow"):
        records.read(buffer, small())

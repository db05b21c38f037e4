"""Tables in a file: the same bytes back, and one clear message for any other file."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from wattflow.kernel import snapshot
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
    state = snapshot.read(io.BytesIO(snapshot.dump(run.state)), run.state)
    world = snapshot.read(io.BytesIO(snapshot.dump(run.world)), run.world)
    for name in state.NAMES:
        assert getattr(state, name).tobytes() == getattr(run.state, name).tobytes()
        assert getattr(state, name).dtype == getattr(run.state, name).dtype
    expected = run.run().attempts.tobytes()
    again = Simulation(sample.workload, sample.cluster, "least-energy", seed=2)
    again.state, again.world = state, world
    assert again.run().attempts.tobytes() == expected


def test_no_pickle_is_in_the_file() -> None:
    with np.load(io.BytesIO(snapshot.dump(small())), allow_pickle=False) as archive:
        assert archive["rows"].tolist() == [(0,)] * 3


def test_another_schema_is_refused_with_both_named() -> None:
    with pytest.raises(InvalidInput, match=r"its tables are 'Small 1 .*load it with the version that saved it"):
        snapshot.read(io.BytesIO(snapshot.dump(small("f8"))), small())


@pytest.mark.parametrize("cut", [10, 200, -30])
def test_a_damaged_file_is_refused(cut: int) -> None:
    whole = snapshot.dump(small())
    with pytest.raises(InvalidInput, match="it is damaged"):
        snapshot.read(io.BytesIO(whole[:cut]), small())


def test_another_archive_is_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.txt", "x")
    buffer.seek(0)
    with pytest.raises(InvalidInput, match="no tables of wattflow"):
        snapshot.read(buffer, small())

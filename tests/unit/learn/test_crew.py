"""A crew does all parts, in as many threads as it has hands, and tells of errors."""

from __future__ import annotations

import threading

import pytest

from wattflow.learn.environment import ThreadCrew


@pytest.mark.parametrize("many", [1, 3])
def test_every_part_is_done_each_time(many: int) -> None:
    crew = ThreadCrew(many)
    done: list[int] = []
    for _ in range(50):
        crew.each(done.append, list(range(many)))
    crew.close()
    assert sorted(done) == sorted(50 * list(range(many)))


def test_parts_are_done_at_the_same_time_and_errors_arrive() -> None:
    crew, meeting = ThreadCrew(2), threading.Barrier(2, timeout=60)
    crew.each(lambda _: meeting.wait(), [0, 1])  # alone, the first part would wait for ever

    def fail(part: int) -> None:
        if part == 1:
            raise ValueError("part 1")

    with pytest.raises(ValueError, match="part 1"):
        crew.each(fail, [0, 1])
    crew.each(lambda _: meeting.wait(), [0, 1])
    crew.close()

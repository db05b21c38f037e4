"""What `make chaos` counts as the time to notice a loss."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from chaos_watch import Loss, detections


def test_a_kill_is_noticed_by_the_first_loss_after_it() -> None:
    assert detections([("a", 10.0)], [("b", 11.0), ("a", 13.0)], [("a", 1.0)], [0.0], [0.5]) == [Loss("a", 3.0, False)]


def test_a_node_that_was_lost_before_cannot_be_lost_by_a_kill() -> None:
    losses = [("a", 9.0), ("a", 25.0)]
    assert detections([("a", 10.0)], losses, [("a", 1.0), ("a", 20.0)], [0.0], [0.5]) == []


def test_a_server_that_was_starting_meanwhile_is_told_apart() -> None:
    found = detections([("a", 10.0)], [("a", 22.0)], [], [0.0, 8.0], [0.5, 18.0])
    assert found == [Loss("a", 12.0, True)]


def test_of_two_kills_before_anybody_noticed_the_later_counts() -> None:
    assert detections([("a", 10.0), ("a", 12.0)], [("a", 14.0)], [], [0.0], [0.5]) == [Loss("a", 2.0, False)]

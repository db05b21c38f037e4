"""What a workload holds."""

from __future__ import annotations

import pytest

from wattflow.generate import Recipe, workload
from wattflow.lab.show.workload_facts import describe_workload


def test_a_description_counts_levels_widths_and_the_longest_path() -> None:
    made = workload("fork-join", 6)
    values = {row["what"]: row["value"] for row in describe_workload(made)}
    assert (values["tasks"], values["edges"], values["levels"], values["tasks of the widest level"]) == (6, 8, 3, 4)
    longest = made.runtime_s[0] + made.runtime_s[1:5].max() + made.runtime_s[5]
    assert values["longest path, s"] == pytest.approx(longest)
    assert values["variants on"] == "cpu"


def test_a_description_of_a_stream_counts_workflows_deadlines_and_devices() -> None:
    values = {row["what"]: row["value"] for row in describe_workload(Recipe("mixed", 8, 3, slack=2.0).draw())}
    assert values["workflows"] == 3 and values["tasks with a deadline"] == 24
    assert values["variants on"] == "cpu, fpga, gpu"

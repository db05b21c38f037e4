"""Designs: axes multiply, every problem is named at once, a point is its content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wattflow.lab.explore.design import Design, bundled, design_of, label_of, read_design, source_of
from wattflow.model.errors import InvalidInput

ROOT = Path(__file__).parents[3]


def design(**changed: Any) -> Design:
    facts: dict[str, Any] = {"frames": ["hash"], "workloads": ["skewed:tasks=50"], **changed}
    return design_of(facts, "design", ROOT)


def problems(**changed: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        design(**changed)
    return str(caught.value)


def test_axes_multiply() -> None:
    found = design(
        frames=[{"use": "hash", "placers": {"count": [1, 5]}, "stealing": [False, {"hosts": 2}]}, "sparrow"],
        policies=["fifo", "sjf"],
        workloads=["skewed:tasks=50", {"make": "ibm-like", "trace": [1, 2, 3], "tasks": 40}],
        seeds=3,
    )
    assert len(found.points) == (2 * 2 + 1) * 2 * (1 + 3) * 3
    assert len({point.key for point in found.points}) == len(found.points)
    assert found.axes == ("placers.count", "stealing")
    assert found.levels("workload")[1:] == [f"ibm-like:trace={n},tasks=40" for n in (1, 2, 3)]
    assert found.levels("policy") == ["fifo+least-loaded", "sjf+least-loaded"]
    assert found.levels("seed") == ["0", "1", "2"]


def test_a_frame_takes_its_base_then_what_is_common_then_its_own() -> None:
    found = design(
        frames=[{"use": "hash-stealing", "name": "mine", "placers": {"count": 7}}],
        every_frame={"placers": {"count": 3, "service": "2ms"}, "stealing": {"retry_s": 0.25}},
    )
    frame = found.points[0].frame
    assert (frame.placers.count, frame.placers.service.mean_s, frame.placers.rule) == (7, 0.002, "hash")
    assert frame.stealing is not None and (frame.stealing.hosts, frame.stealing.retry_s) == (4, 0.25)


def test_labels_name_the_levels_and_false_removes_a_section() -> None:
    stealing = [False, {"hosts": 2, "label": "hosts steal"}, {"hosts": 3}]
    found = design(frames=[{"use": "hash-stealing", "name": "hash", "stealing": stealing}])
    assert found.levels("frame") == ["hash, no stealing", "hash, hosts steal", "hash, stealing (hosts 3)"]
    assert [point.frame.stealing is None for point in found.points] == [True, False, False]
    assert label_of(found.points[1], "stealing") == "hosts steal"


def test_distributions_are_not_axes() -> None:
    fetch = {"distribution": "choice", "values_s": [0.1, 0.2], "weights": [1, 3]}
    found = design(every_frame={"metadata": {}, "data": {"cache_objects": 10, "fetch": fetch}})
    assert len(found.points) == 1


def test_every_problem_is_found_at_once() -> None:
    text = problems(
        frames=["hsah", {"use": "centralised", "stealing": [{"hosts": 2}]}, {"use": "hash", "placers": {"count": []}}],
        policies=["fifo", "lifo", "fifo"],
        clusters=["no-such-cluster"],
        workloads=["skewed:tasks=0,speed=3", "nothing.json", {"trace": 3}],
        seeds=[1, 1],
        wokers=2,
    )
    for part in (
        "hsah", "did you mean 'hash'", "queues at the hosts", "axis without values", "lifo", "listed twice",
        "no-such-cluster", "tasks: must be a whole number", "speed", "nothing.json", "'make'", "a seed is listed twice",
        "unknown key 'wokers'",
    ):  # fmt: skip
        assert part in text, f"{part!r} is missing in\n{text}"


def test_combinations_that_cannot_work_are_errors_or_skipped_on_request() -> None:
    facts = {"frames": [{"use": "centralised-push", "stealing": [False, {"hosts": 2}, {"placers": 2}]}]}
    assert "there is only one" in problems(**facts)
    found = design(**facts, skip_invalid=True)
    assert len(found.points) == 2 and "there is only one" in found.skipped[0]


def test_equal_frames_under_two_names_are_refused() -> None:
    assert "are the same frame" in problems(frames=["hash", {"use": "hash", "name": "other"}])
    assert "two frames are called" in problems(frames=["hash", {"use": "sparrow", "name": "hash"}])


def test_a_workload_without_a_cluster_needs_one() -> None:
    assert "brings no cluster of its own" in problems(workloads=["montage:tasks=20"])
    assert len(design(workloads=["montage:tasks=20"], clusters=["20x4", "mixed"]).points) == 2


def test_the_key_is_the_content() -> None:
    key = design().points[0].key
    assert design(name="renamed", frames=[{"use": "hash", "name": "h", "about": "!"}]).points[0].key == key
    others = [
        design(frames=[{"use": "hash", "placers": {"count": 4}}]),
        design(policies=["sjf"]),
        design(clusters=["20x4"]),
        design(workloads=["skewed:tasks=51"]),
        design(seeds=[1]),
    ]
    assert len({key, *(other.points[0].key for other in others)}) == 6


def test_a_trace_is_known_by_its_content(tmp_path: Path) -> None:
    from wattflow import traces
    from wattflow.generate.recipe import Recipe

    for seed, name in ((0, "a.json"), (0, "b.json"), (1, "c.json")):
        traces.save(Recipe("chain", tasks=4).draw(seed), tmp_path / name)
    a, again, other = (source_of(name, tmp_path).content for name in ("a.json", "a.json", "c.json"))
    assert a == again != other


@pytest.mark.parametrize("name", ["explore_exde", "explore_small"])
def test_shipped_designs_are_valid(name: str) -> None:
    found = read_design(bundled(Path(name)))
    assert found.points and not found.skipped


def test_every_shipped_design_is_among_those_that_are_tested() -> None:
    shipped = {p.stem for p in (ROOT / "src/wattflow/data/designs").glob("*.toml")}
    assert shipped == {"explore_exde", "explore_small"}


def test_the_study_has_its_twelve_designs() -> None:
    found = read_design(bundled(Path("explore_exde")))
    assert len(found.levels("frame")) == 12
    assert len(found.levels("design")) == 4

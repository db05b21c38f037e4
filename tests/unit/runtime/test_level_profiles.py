"""Profiles of functions on an agent's GPUs: read, announced with the device, priced by the engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wattflow.levels.function_profile import FunctionProfile
from wattflow.levels.holder import Holder
from wattflow.levels.port import Knob
from wattflow.levels.response import LevelRun
from wattflow.model.errors import InvalidInput
from wattflow.runtime import facts
from wattflow.runtime import messages as m
from wattflow.runtime.level_profiles import read_profiles, with_responses
from wattflow.runtime.levelling import AgentLevels

MODEL = "NVIDIA H200"
CARD = m.Device(kind="gpu", model=MODEL, clocks_mhz=[1980.0, 1485.0, 1287.0], idle_w=122.0, full_w=700.0)
COPY = (LevelRun(1980.0, 2.0, 988.0), LevelRun(1485.0, 2.01, 835.0))


def written(path: Path, **changes: object) -> Path:
    facts = {"function": "copy", "model": MODEL, "knob": "clock_mhz", "idle_w": 122.0, "runs": COPY, "meter": "nvml",
             "measured_at": "2026-11-16"}  # fmt: skip
    FunctionProfile(**{**facts, **changes}).write(path)  # type: ignore[arg-type]
    return path


def test_what_was_measured_goes_before_what_was_learned(tmp_path: Path) -> None:
    profiles = read_profiles([written(tmp_path / "copy.json")], [MODEL])
    told = with_responses(CARD, profiles)
    costs = told.responses["copy"]
    assert costs.seconds[:2] == pytest.approx([1.0, 1.005]) and costs.joules[:2] == pytest.approx(
        [1.0, 0.845], abs=1e-3
    )
    learned = m.Device(
        **{**{f: getattr(told, f) for f in told.__struct_fields__}, "compute_bound": {"copy": 1.0, "g": 1.0}}
    )
    levels = facts.device_of(learned).levels
    assert levels is not None
    seconds, joules = levels.cost("copy", 1) or (0.0, 0.0)
    assert seconds == pytest.approx(1.005) and joules == pytest.approx(0.845, abs=1e-3)
    assert (levels.cost("g", 1) or (0.0, 0.0))[0] == pytest.approx(4 / 3) and levels.cost("h", 1) is None


def test_below_the_lowest_clock_that_was_run_the_upper_ends_count(tmp_path: Path) -> None:
    profile = read_profiles([written(tmp_path / "copy.json")], [MODEL])[0]
    costs = with_responses(CARD, [profile]).responses["copy"]
    full = profile.response.joules(1980.0).value
    assert costs.joules[2] == pytest.approx(profile.response.joules(1287.0).high / full)
    assert costs.joules[2] > profile.response.joules(1287.0).value / full


def test_another_card_and_one_whose_clock_cannot_be_set_say_nothing(tmp_path: Path) -> None:
    profiles = read_profiles([written(tmp_path / "copy.json")], [MODEL])
    for device in (m.Device(kind="gpu", model="A100", clocks_mhz=CARD.clocks_mhz), m.Device(kind="gpu", model=MODEL)):
        assert with_responses(device, profiles) == device


def test_a_profile_of_another_model_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"is of another model, NVIDIA H200; here: A100\. Profile copy here"):
        read_profiles([written(tmp_path / "copy.json")], ["A100", "A100"])
    with pytest.raises(InvalidInput, match="here: no GPU"):
        read_profiles([tmp_path / "copy.json"], [])


def test_all_that_is_wrong_with_profiles_is_told_at_once(tmp_path: Path) -> None:
    good, twice = written(tmp_path / "a.json"), written(tmp_path / "b.json")
    document = json.loads(good.read_text())
    bad = {"text": "no json", "old": json.dumps(document | {"version": 9}), "bare": json.dumps(document | {"runs": []}),
           "cap": json.dumps(document | {"knob": "cap_w"}),
           "nan": json.dumps(document | {"runs": [{"level": 1.0, "seconds": -1.0, "joules": 1.0}]})}  # fmt: skip
    paths = [good, twice]
    for name, text in bad.items():
        paths.append(tmp_path / name)
        paths[-1].write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_profiles([*paths, tmp_path / "none.json"], [MODEL])
    told = str(caught.value)
    assert len(caught.value.problems) == 7 and "second profile of copy" in told and "has version 9" in told
    assert told.count("is no profile of `wattflow levels profile`") == 4 and "cannot be read" in told


class Card:
    """A GPU whose clock is a number; one that is deaf keeps its own."""

    name, deaf = "played", False
    clock = 1980.0

    def knobs(self) -> list[Knob]:
        return [Knob("gpu-0", "clock_mhz", "played", 198.0, 1980.0, 15.0, mine=True)]

    def read(self, knob: Knob) -> float | None:
        return self.clock

    def write(self, knob: Knob, value: float | None) -> None:
        self.clock = 1980.0 if value is None or self.deaf else value

    def users(self, knob: Knob) -> frozenset[int]:
        return frozenset()

    def close(self) -> None:
        """Nothing to close."""


def test_an_agent_announces_few_clocks_of_a_gpu_and_what_they_do(tmp_path: Path) -> None:
    profiles = read_profiles([written(tmp_path / "copy.json")], [MODEL])
    levels = AgentLevels(Holder([Card()], tmp_path / "notes", watched=False), profiles=profiles)
    node = m.Node(name="n", cpus=2.0, memory_bytes=1 << 30, devices=[m.Device(kind="gpu", model=MODEL)])
    told = levels.describe(node).devices[0]
    # Policies look at the first three: from the second on they save, and the third is no half clock yet.
    assert told.clocks_mhz == [1980.0, 1485.0, 1287.0, 1089.0] and set(told.responses) == {"copy"}
    assert facts.device_of(told).levels is not None
    levels.close()


class Limited(Card):
    """A GPU with a limit alone, which somebody set below its highest."""

    limit_w = 690.0

    def knobs(self) -> list[Knob]:
        return [Knob("gpu-0", "cap_w", "played", 200.0, 700.0, 1.0, mine=True)]

    def read(self, knob: Knob) -> float | None:
        return self.limit_w

    def write(self, knob: Knob, value: float | None) -> None:
        self.limit_w = 690.0 if value is None else value


def test_a_gpu_without_clocks_offers_limits_and_what_its_profile_says_of_them(tmp_path: Path) -> None:
    runs = (*COPY, LevelRun(1287.0, 2.26, 797.0), LevelRun(1089.0, 2.82, 867.0))
    profiles = read_profiles([written(tmp_path / "copy.json", runs=runs)], [MODEL])
    card = Limited()
    levels = AgentLevels(Holder([card], tmp_path / "notes", watched=False), profiles=profiles)
    node = m.Node(name="n", cpus=2.0, memory_bytes=1 << 30, devices=[m.Device(kind="gpu", model=MODEL)])
    told = levels.describe(node).devices[0]
    assert told.caps_w == [690.0, 593.0, 497.0, 400.0] and not told.clocks_mhz
    card.limit_w = 400.0
    assert levels.describe(node).devices[0].caps_w == told.caps_w, "a limit that we set is not the highest now"
    known = facts.device_of(told).levels
    assert known is not None and known.knob == "cap_w" and known.cost("other", 1) is None
    # At full clock it draws 494 W: only the lowest limit changes anything.
    assert known.cost("copy", 1) == (1.0, 1.0)
    seconds, joules = known.cost("copy", 3) or (0.0, 0.0)
    assert 1.0 < seconds < 1.13 and 0.75 < joules < 0.9
    levels.close()


def test_a_limit_that_no_run_reached_is_never_worth_it(tmp_path: Path) -> None:
    profiles = read_profiles([written(tmp_path / "copy.json")], [MODEL])
    device = m.Device(kind="gpu", model=MODEL, caps_w=[700.0, 450.0, 300.0])
    costs = with_responses(device, profiles).responses["copy"]
    assert costs.joules[1] < 1.0 and costs.joules[2] == costs.seconds[2] == 1000.0


def test_a_device_without_levels_has_none() -> None:
    assert facts.device_of(m.Device(kind="gpu", model=MODEL, caps_w=[700.0])).levels is None

"""Levels are set, read back and given back: by their owner, by a watchdog, by the next start, by `levels off`."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from research.played_sysfs import FULL_KHZ, ceiling_khz, play_sysfs
from wattflow.levels import sysfs
from wattflow.levels.holder import Holder
from wattflow.levels.port import Knob, LevelRefused

KNOB = "cpu-policy0.clock_mhz"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return play_sysfs(tmp_path / "sys")


@pytest.fixture
def holder(tree: Path, tmp_path: Path) -> Iterator[Holder]:
    made = Holder([sysfs.cpufreq(tree), sysfs.powercap(tree), sysfs.amdgpu(tree)], tmp_path / "notes", watched=False)
    yield made
    made.close()


def until(true: Callable[[], bool], limit_s: float = 60.0) -> None:
    end_s = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end_s, "not so within the limit"
        time.sleep(0.01)


def test_every_knob_says_its_range_and_who_may_turn_it(holder: Holder) -> None:
    by_id = {knob.id: knob for knob in holder.knobs}
    assert set(by_id) == {KNOB, "cpu-policy1.clock_mhz", "package-0.cap_w", "amdgpu-0.cap_w"}
    assert (by_id[KNOB].low, by_id[KNOB].high, by_id[KNOB].mine) == (800.0, 3600.0, True)
    assert (by_id["package-0.cap_w"].low, by_id["package-0.cap_w"].high) == (75.0, 150.0)


@pytest.mark.parametrize(("knob", "value"), [(KNOB, 2000.0), ("package-0.cap_w", 100.0), ("amdgpu-0.cap_w", 200.0)])
def test_a_level_is_set_read_back_and_given_back(holder: Holder, knob: str, value: float) -> None:
    before = holder.read(knob)
    assert holder.set(knob, value).seen == pytest.approx(value)
    holder.set(knob, value * 1.1)
    assert holder.give_back(knob) and holder.read(knob) == before
    assert not holder.give_back(knob), "it is held no more"


def test_an_order_that_comes_after_all_was_given_back_leaves_nothing(holder: Holder, tree: Path) -> None:
    """An agent that stops cannot call back an order that one of its threads is about to carry out."""
    holder.set(KNOB, 2000.0)
    holder.close()
    with pytest.raises(LevelRefused, match="has given its levels back"):
        holder.set(KNOB, 2000.0)
    assert ceiling_khz(tree) == FULL_KHZ and not holder.notes.all()


@pytest.mark.parametrize("value", [799.0, 3601.0, math.nan, math.inf, -1.0])
def test_a_level_out_of_range_changes_nothing(holder: Holder, tree: Path, value: float) -> None:
    with pytest.raises(LevelRefused, match="800 to 3600 MHz is allowed"):
        holder.set(KNOB, value)
    assert ceiling_khz(tree) == FULL_KHZ and not holder.notes.all()


def test_an_unknown_knob_names_those_there_are(holder: Holder) -> None:
    with pytest.raises(LevelRefused, match=r"no such knob.*package-0\.cap_w"):
        holder.set("gpu-7.clock_mhz", 1000.0)


class Deaf:
    """A device that takes an order and forgets it, or tells no number."""

    name = "deaf"

    def __init__(self, answer: float | None, users: frozenset[int] = frozenset()) -> None:
        self.answer, self.asked, self._users = answer, list[float | None](), users

    def knobs(self) -> list[Knob]:
        return [Knob("gpu-0", "cap_w", "deaf", 200.0, 700.0, 1.0, mine=True)]

    def read(self, knob: Knob) -> float | None:
        return self.answer

    def write(self, knob: Knob, value: float | None) -> None:
        self.asked.append(value)

    def users(self, knob: Knob) -> frozenset[int]:
        return self._users

    def close(self) -> None:
        """Nothing to close."""


def test_a_setting_that_is_ignored_is_noticed_and_taken_back(tmp_path: Path) -> None:
    device = Deaf(700.0)
    with pytest.raises(LevelRefused, match="400 W was ignored: 700 W is read back"):
        Holder([device], tmp_path, watched=False).set("gpu-0.cap_w", 400.0)
    assert device.asked == [400.0, 700.0] and not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("answer", [math.nan, None])
def test_what_cannot_be_read_is_never_turned(tmp_path: Path, answer: float | None) -> None:
    device = Deaf(answer)
    with pytest.raises(LevelRefused, match="cannot be read"):
        Holder([device], tmp_path, watched=False).set("gpu-0.cap_w", 400.0)
    assert device.asked == [] and not list(tmp_path.glob("*.json"))


def test_a_device_with_a_foreign_process_is_never_touched(tmp_path: Path) -> None:
    foreign, own = Deaf(700.0, frozenset({1})), Deaf(400.0, frozenset({os.getpid()}))
    with pytest.raises(LevelRefused, match="process 1 of somebody else is on gpu-0; not touched"):
        Holder([foreign], tmp_path / "a", watched=False).set("gpu-0.cap_w", 400.0)
    assert foreign.asked == []
    assert Holder([own], tmp_path / "b", watched=False).set("gpu-0.cap_w", 400.0).seen == 400.0


def test_without_rights_one_message_and_nothing_left_behind(tree: Path, tmp_path: Path) -> None:
    class Locked(sysfs.FileActuator):
        def write(self, knob: Knob, value: float | None) -> None:
            raise PermissionError(13, "Permission denied")

    knob = Knob("cpu-policy0", "clock_mhz", "cpufreq", 800.0, 3600.0, 100.0)
    path = tree / "devices/system/cpu/cpufreq/policy0/scaling_max_freq"
    holder = Holder([Locked("cpufreq", [sysfs._File(knob, path, 3600.0)])], tmp_path / "n", watched=False)
    with pytest.raises(LevelRefused, match="Permission denied; root may set it"):
        holder.set(KNOB, 2000.0)
    assert ceiling_khz(tree) == FULL_KHZ and not holder.notes.all()


def test_what_somebody_else_set_meanwhile_is_theirs(holder: Holder, tree: Path) -> None:
    holder.set(KNOB, 2000.0)
    (tree / "devices/system/cpu/cpufreq/policy0/scaling_max_freq").write_text("1500000")
    assert holder.check() == {KNOB: "it is 1500 MHz now, not 2000 MHz"}
    assert ceiling_khz(tree) == 1_500_000 and not holder.notes.all()


def test_a_foreign_process_that_comes_later_gets_the_device_at_full_clock(tmp_path: Path) -> None:
    device = Deaf(400.0)
    holder = Holder([device], tmp_path, watched=False)
    holder.set("gpu-0.cap_w", 400.0)
    device._users = frozenset({1})
    assert "process 1 of somebody else came" in holder.check()["gpu-0.cap_w"] and device.asked == [400.0, 400.0]


def test_levels_off_is_one_switch(holder: Holder, tree: Path) -> None:
    holder.set(KNOB, 2000.0)
    holder.notes.switch(on=False)
    assert holder.give_back_all(of_others=True) == [KNOB] and ceiling_khz(tree) == FULL_KHZ
    with pytest.raises(LevelRefused, match="levels are off"):
        holder.set(KNOB, 2000.0)
    holder.notes.switch(on=True)
    holder.set(KNOB, 2000.0)


def test_notes_that_others_could_forge_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(LevelRefused, match="others may write"):
        Holder([], tmp_path / "open", watched=False)


SETS = """
import sys, pathlib, time
from wattflow.levels.actuators import find_actuators, notes_folder
from wattflow.levels.holder import Holder
holder = Holder(find_actuators(), notes_folder())
for one in sys.argv[1:]:
    knob, _, value = one.partition("=")
    holder.set(knob, float(value))
print(holder._watchdog.pid, flush=True)
time.sleep(600)
"""


def setter(environment: dict[str, str], *orders: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-c", SETS, *orders], env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        return process, int(process.stdout.readline())


def environment_of(tree: Path, tmp_path: Path) -> dict[str, str]:
    return {"WATTFLOW_SYSFS": str(tree), "WATTFLOW_LEVELS": str(tmp_path / "notes")}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_watchdog_outlives_the_owner_and_gives_back(tree: Path, tmp_path: Path, number: signal.Signals) -> None:
    process, watchdog = setter(environment_of(tree, tmp_path), f"{KNOB}=1200", "package-0.cap_w=90")
    assert ceiling_khz(tree) == 1_200_000
    os.kill(watchdog, signal.SIGTERM)  # as a service manager does to the whole group
    process.send_signal(number)
    process.wait()
    until(lambda: not list((tmp_path / "notes").glob("*.json")))
    assert ceiling_khz(tree) == FULL_KHZ
    assert int((tree / "class/powercap/intel-rapl:0/constraint_0_power_limit_uw").read_text()) == 150_000_000


def test_with_owner_and_watchdog_killed_the_next_start_gives_back(tree: Path, tmp_path: Path) -> None:
    process, watchdog = setter(environment_of(tree, tmp_path), f"{KNOB}=1200")
    os.kill(watchdog, signal.SIGKILL)
    process.kill()
    process.wait()
    assert ceiling_khz(tree) == 1_200_000
    Holder([sysfs.cpufreq(tree)], tmp_path / "notes", watched=False)
    assert ceiling_khz(tree) == FULL_KHZ


def test_two_processes_never_turn_one_knob(tree: Path, tmp_path: Path) -> None:
    process, _ = setter(environment_of(tree, tmp_path), f"{KNOB}=1200")
    try:
        other = Holder([sysfs.cpufreq(tree)], tmp_path / "notes", watched=False)
        with pytest.raises(LevelRefused, match=f"process {process.pid} holds it at 1200 MHz"):
            other.set(KNOB, 2000.0)
        assert not other.give_back(KNOB) and ceiling_khz(tree) == 1_200_000
    finally:
        process.kill()
        process.wait()


def test_a_note_is_there_before_the_knob_is_turned(tree: Path, tmp_path: Path) -> None:
    noted: list[dict[str, object]] = []

    class Looking(sysfs.FileActuator):
        def write(self, knob: Knob, value: float | None) -> None:
            noted.extend(json.loads(path.read_text()) for path in (tmp_path / "n").glob("*.json"))
            super().write(knob, value)

    knob = Knob("cpu-policy0", "clock_mhz", "cpufreq", 800.0, 3600.0, 100.0)
    path = tree / "devices/system/cpu/cpufreq/policy0/scaling_max_freq"
    holder = Holder([Looking("cpufreq", [sysfs._File(knob, path, 3600.0)])], tmp_path / "n", watched=False)
    holder.set(KNOB, 2000.0)
    assert [(one["knob"], one["before"], one["value"]) for one in noted] == [(KNOB, 3600.0, 2000.0)]

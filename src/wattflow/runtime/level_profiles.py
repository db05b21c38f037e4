"""Profiles of `wattflow levels profile` on the machine that they were measured on: what an agent announces of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from wattflow.files.whole import small_text
from wattflow.levels.function_profile import VERSION, FunctionProfile
from wattflow.model.errors import InvalidInput, Problem
from wattflow.runtime import messages as m

NEVER = 1e3
"""Times the seconds and joules at full clock."""


class _Version(msgspec.Struct):
    version: int


def read_profiles(paths: Sequence[Path], models: Sequence[str]) -> tuple[FunctionProfile, ...]:
    """Read profiles for a machine with these models of GPU.

    Raises:
        InvalidInput: With all that is wrong: no profile, of a model that is not here, or twice of one function.
    """
    problems, found = [], {}
    for path in paths:
        try:
            one = _read(path)
        except InvalidInput as error:
            problems += [Problem(str(path), str(problem)) for problem in error.problems]
            continue
        key = (one.function, one.model)
        if one.model not in models:
            here = ", ".join(sorted(set(models))) or "no GPU"
            problems.append(
                Problem(str(path), f"is of another model, {one.model}; here: {here}. Profile {one.function} here")
            )
        elif key in found:
            problems.append(Problem(str(path), f"is the second profile of {one.function} on {one.model}"))
        found[key] = one
    if problems:
        raise InvalidInput("--level-profile", problems)
    return tuple(found.values())


def _read(path: Path) -> FunctionProfile:
    text = small_text(path, "profile of a function")
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version != VERSION:
            raise InvalidInput(str(path), f"has version {version}; this wattflow reads {VERSION}")
        found = msgspec.json.decode(text, type=FunctionProfile)
    except msgspec.DecodeError as error:
        raise InvalidInput(str(path), f"is no profile of `wattflow levels profile`: {error}") from error
    if found.knob != "clock_mhz" or not found.runs or not found.idle_w >= 0:
        raise InvalidInput(str(path), "is no profile of `wattflow levels profile`: it has no runs at clocks")
    return found


def with_responses(device: m.Device, profiles: Sequence[FunctionProfile]) -> m.Device:
    """Say with a device what was measured of functions on its model, at the levels that can be set now."""
    at, levels = (_at_clock, device.clocks_mhz) if len(device.clocks_mhz) > 1 else (_under_cap, device.caps_w)
    if len(levels) < 2:
        return device
    # The first level is the device as it runs by itself, whatever its limit is called.
    known = {
        one.function: _costs([_at_clock(one, one.response.full), *(at(one, level) for level in levels[1:])])
        for one in profiles
        if one.model == device.model
    }
    return msgspec.structs.replace(device, responses=known) if known else device


def _costs(told: Sequence[tuple[float, float]]) -> m.LevelCosts:
    """Return seconds and joules at each level over those at the first."""
    full_s, full_j = told[0]
    # A lower level makes nothing quicker: what looks like it is noise.
    return m.LevelCosts([max(1.0, seconds / full_s) for seconds, _ in told], [joules / full_j for _, joules in told])


def _at_clock(profile: FunctionProfile, clock: float) -> tuple[float, float]:
    """Return seconds and joules; below the lowest clock that was run the curve is not believed, and the upper ends of
    its intervals count."""
    both = profile.response.seconds(clock), profile.response.joules(clock)
    ran = clock >= min(run.level for run in profile.runs)
    seconds, joules = (one.value if ran else one.high for one in both)
    return seconds, joules


def _under_cap(profile: FunctionProfile, cap_w: float) -> tuple[float, float]:
    """Return seconds and joules; under limits that no run reached nothing is known, and nobody is to choose them."""
    response, full = profile.response, profile.response.full
    told = response.under_cap(cap_w)
    times = 1.0
    if told is None:
        told, times = (response.seconds(full), response.joules(full)), NEVER
    return times * told[0].value, times * told[1].value

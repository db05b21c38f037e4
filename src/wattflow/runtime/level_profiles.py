"""Profiles of `wattflow levels profile` on the machine that they were measured on: what an agent announces of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from wattflow.files.whole import small_text
from wattflow.levels.function_profile import VERSION, FunctionProfile
from wattflow.levels.response import Estimate
from wattflow.model.errors import InvalidInput, Problem
from wattflow.runtime import messages as m


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
    """Say with a device what was measured of functions on its model, at the clocks that can be set now."""
    known = {one.function: _costs(one, device.clocks_mhz) for one in profiles if one.model == device.model}
    return msgspec.structs.replace(device, responses=known) if known and len(device.clocks_mhz) > 1 else device


def _costs(profile: FunctionProfile, clocks: Sequence[float]) -> m.LevelCosts:
    """Return seconds and joules at each clock over those at full clock.

    Below the lowest clock that was run the curve is not believed: there the upper ends of its intervals count.
    """
    response, lowest = profile.response, min(run.level for run in profile.runs)

    def told(estimate: Estimate, clock: float) -> float:
        return estimate.value if clock >= lowest else estimate.high

    seconds = [told(response.seconds(clock), clock) for clock in clocks]
    joules = [told(response.joules(clock), clock) for clock in clocks]
    # A lower clock makes nothing quicker: what looks like it is noise.
    return m.LevelCosts([max(1.0, one / seconds[0]) for one in seconds], [one / joules[0] for one in joules])

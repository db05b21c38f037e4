"""`wattflow levels`: what clocks and limits can be set here, give all back, profile a command over them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wattflow.cli import options as o
from wattflow.cli.live import show
from wattflow.cli.screen import check_outputs, check_target, guarded, never_onto, remark
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.energy.meters.port import Meter
    from wattflow.levels.function_profile import FunctionProfile
    from wattflow.levels.holder import Holder
    from wattflow.levels.port import Knob
    from wattflow.levels.response import LevelRun

app = typer.Typer(help="Clocks and power limits of this machine.", no_args_is_help=True, rich_markup_mode=None)
COLUMNS = ("knob", "by", "now", "low", "high", "who may", "here", "held by")
# From 45 % of the clock up: no curve is believed far below the lowest clock that was run.
GRID, LOWEST = 10, 0.45


def listed(output: o.Output = None) -> None:
    """List every clock and limit that can be set here: its range, who may, what is in force, who holds it."""
    with_holder = _holder()
    notes = {note.knob: note for note in with_holder.notes.all()}
    rows = [_row(with_holder, knob, notes.get(knob.id)) for knob in with_holder.knobs]
    show(rows, COLUMNS, output or o.OutputForm.table, None, "no clock and no limit can be set on this machine")
    if with_holder.notes.off:
        remark("levels are off: nothing is set until `wattflow levels on`")


def _row(holder: Holder, knob: Knob, note: Any) -> dict[str, Any]:
    return {
        "knob": knob.id,
        "by": knob.actuator,
        "now": holder.read(knob.id),
        "low": knob.low,
        "high": knob.high,
        "who may": knob.who,
        "here": "yes" if knob.mine else "no",
        "held by": None if note is None else f"process {note.pid}: {knob.shown(note.value)}",
    }


def off(quiet: o.Quiet = False) -> None:
    """Give back every clock and limit at once, whoever holds it, and allow none until `wattflow levels on`."""
    holder = _holder()
    # First of all, so that no agent takes a knob again while they are given back.
    holder.notes.switch(on=False)
    returned = holder.give_back_all(of_others=True)
    left = [note.knob for note in holder.notes.all()]
    remark(f"levels are off; given back: {', '.join(returned) or 'nothing was held'}", quiet)
    # Given back as far as rights go; the rest is named, with exit code 2.
    if left:
        raise InvalidInput("levels off", f"not given back: {', '.join(left)}; run it as who may set them")


def on(quiet: o.Quiet = False) -> None:
    """Allow clocks and limits to be set again."""
    _holder().notes.switch(on=True)
    remark("levels are on", quiet)


def profile(
    work: Annotated[
        list[str], typer.Argument(metavar="FILE.py:FUNCTION…|COMMAND", help="What to run; a command after --.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Profile to write; of several functions a folder.")
    ],
    function: Annotated[str | None, typer.Option("--function", help="Name of the function that COMMAND runs.")] = None,
    device: Annotated[str, typer.Option("--device", help="Whose clock: gpu-0, …, or cpu for all of the node.")] = "",
    runs: Annotated[int, typer.Option("--runs", min=2, max=20, help="Runs at most, of each function.")] = 6,
    force: o.Force = False,
    quiet: o.Quiet = False,
) -> None:
    """Run functions or a command at a few clocks, chosen as it learns; keep how seconds and joules respond.

    Each run is a process of its own, its loading included. The clock is as before afterwards, whatever happens.

    Example: wattflow levels profile work.py:copy work.py:matmul --out profiles
    Example: wattflow levels profile --function matmul --out matmul.json -- python3 matmul.py
    """
    commands = _commands(work, function)
    places = {name: out / f"{name}.json" if len(commands) > 1 else out for name in commands}
    several = len(commands) > 1
    if several and out.is_file():
        raise InvalidInput(str(out), "is a file; profiles of several functions need a folder")
    never_onto([word.rpartition(":")[0] for word in work if function is None], out)
    (check_target if several else check_outputs)(force, out)
    holder, done = _holder(), []
    knobs = _clocks(holder, device)
    meter, model, driver = _meter_of(knobs)
    try:
        for name, command in commands.items():
            idle_w, measured = _measure(holder, knobs, meter, command, runs)
            done.append(_document(name, (model, driver), idle_w, measured, meter.name))
            # At once: what another function does later takes nothing away.
            places[name].parent.mkdir(parents=True, exist_ok=True)
            done[-1].write(places[name])
            _tell(done[-1], places[name], quiet)
    # The clock is given back before anything else may fail.
    finally:
        holder.close()
        meter.close()
    remark(f"for a cluster file: {_as_toml(done)}", quiet)


def _commands(work: list[str], function: str | None) -> dict[str, list[str]]:
    """Return what to run for each function."""
    from wattflow.levels.function_profile import command_of

    if function is not None:
        if not function.strip():
            raise InvalidInput("--function", "is empty; write the name that workflows call the function by")
        return {function: work}
    found = [command_of(word) for word in work]
    twice = next((name for at, (name, _) in enumerate(found) if name in dict(found[:at])), None)
    if twice is not None:
        raise InvalidInput("levels profile", f"two of the functions are called {twice!r}; profile them apart")
    return dict(found)


def _measure(
    holder: Holder, knobs: list[Knob], meter: Meter, command: list[str], runs: int
) -> tuple[float, tuple[LevelRun, ...]]:
    from wattflow.levels.function_profile import CommandRuns, choose_runs

    measure = CommandRuns(holder, knobs, meter, command)
    # Several clocks share one grid: what all of them can do.
    high, low = min(knob.high for knob in knobs), max(knob.low for knob in knobs)
    floor = max(low, LOWEST * high)
    # The top level exactly: rounded, it would be a ceiling and not the free clock.
    levels = [round(floor + (high - floor) * i / (GRID - 1)) for i in range(GRID - 1)] + [high]
    idle_w = measure.idle_w()
    return idle_w, choose_runs(measure, levels, idle_w, runs).runs


def _document(
    function: str, device: tuple[str, str], idle_w: float, runs: tuple[LevelRun, ...], meter: str
) -> FunctionProfile:
    import datetime

    from wattflow.levels.function_profile import FunctionProfile

    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    provenance = "virtual" if meter == "virtual" else "measured"
    return FunctionProfile(function, device[0], "clock_mhz", idle_w, runs, meter, today, device[1], provenance)


def _clocks(holder: Holder, device: str) -> list[Knob]:
    """Find the clocks of a device; without a name those of the first GPU, else of the processors."""
    clocks = [knob for knob in holder.knobs if knob.kind == "clock_mhz"]
    devices = list(dict.fromkeys("cpu" if knob.device.startswith("cpu-") else knob.device for knob in clocks))
    if not devices:
        raise InvalidInput(
            "levels profile", "no clock can be set on this machine; `wattflow levels list` shows what can"
        )
    wanted = device or devices[0]
    if wanted not in devices:
        raise InvalidInput("--device", f"{wanted!r} has no clock that can be set; there are: {', '.join(devices)}")
    return [knob for knob in clocks if knob.device == wanted or (wanted == "cpu" and knob.device.startswith("cpu-"))]


def _meter_of(knobs: list[Knob]) -> tuple[Meter, str, str]:
    """Open the meter that counts the device's joules, and name the device's model and driver."""
    from wattflow.energy import machine_facts
    from wattflow.energy.meters.nvml import NvmlMeter
    from wattflow.energy.meters.probe import open_node_meter

    device = knobs[0].device
    if not device.startswith("gpu-"):
        return open_node_meter(), machine_facts.cpu_model() or "cpu", ""
    gpus = NvmlMeter((int(device.removeprefix("gpu-")),))
    about = gpus.about(device)
    return gpus, str(about["model"] or "gpu"), str(about["driver"] or "")


def _tell(done: FunctionProfile, out: Path, quiet: bool) -> None:
    response = done.response
    for slack in (1.02, 1.1, 1.3):
        # Only levels that were run: what is printed was measured.
        levels = sorted({run.level for run in done.runs})
        level = response.best(levels, slack)
        seconds, joules = response.seconds(level), response.joules(level)
        base = response.seconds(response.full).value, response.joules(response.full).value
        remark(
            f"slack {slack:g} ×: {level:g} MHz, {seconds.value / base[0]:.3f} × seconds, "
            f"{joules.value / base[1]:.3f} × joules ({joules.low / base[1]:.2f} to {joules.high / base[1]:.2f})",
            quiet,
        )
    remark(f"wrote {out}: {done.function} on {done.model}, {len(done.runs)} runs, {done.meter}", quiet)


def _as_toml(done: list[FunctionProfile]) -> str:
    """Write the levels that were run, of several functions those of all, as the key of a device in a cluster file."""
    ran = [{run.level for run in one.runs} for one in done]
    levels = sorted(set.intersection(*ran), reverse=True)
    known = ", ".join(_row_of(one, levels) for one in done)
    return f'levels = {{ knob = "clock_mhz", values = {levels}, functions = {{ {known} }} }}'


def _row_of(done: FunctionProfile, levels: list[float]) -> str:
    import json

    took = [done.response.seconds(level).value for level in levels]
    drawn = [done.response.joules(level).value for level in levels]
    # At least 1: a lower clock makes nothing quicker, so what looks like it is noise.
    seconds = [max(1.0, round(one / took[0], 4)) for one in took]
    joules = [round(one / drawn[0], 4) for one in drawn]
    return f"{json.dumps(done.function)} = {{ seconds = {seconds}, joules = {joules} }}"


def _holder() -> Holder:
    from wattflow.levels.actuators import find_actuators, notes_folder
    from wattflow.levels.holder import Holder

    return Holder(find_actuators(), notes_folder())


app.command("list")(guarded(listed))
app.command("off")(guarded(off))
app.command("on")(guarded(on))
app.command("profile")(guarded(profile))

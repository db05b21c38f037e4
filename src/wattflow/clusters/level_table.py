"""The ``levels`` of a device in a cluster file."""

from __future__ import annotations

from wattflow.files.strict_table import StrictTable
from wattflow.model.device_levels import KNOBS, DeviceLevels, FunctionLevels
from wattflow.model.profile import Provenance

_PROVENANCES = tuple(str(one) for one in Provenance)


def read_levels(device: StrictTable) -> DeviceLevels | None:
    """Read a device's levels; None where it has none, or they are wrong, which is noted."""
    table = device.table("levels")
    if table is None:
        return None
    knob = table.choice("knob", KNOBS, KNOBS[0])
    values, share = table.numbers("values"), table.maybe_number("compute_share")
    rows = [_function(name, one) for name, one in table.named_tables("functions").items()]
    table.finish()
    known = tuple(row for row in rows if row is not None)
    try:
        # One wrong function makes the table unusable: a missing row would look like a function nobody
        # measured.
        return DeviceLevels(knob, values, known, share) if len(known) == len(rows) else None
    except ValueError as error:
        table.problem("", str(error))
        return None


def _function(name: str, table: StrictTable) -> FunctionLevels | None:
    seconds, joules = table.numbers("seconds"), table.numbers("joules")
    provenance = Provenance(table.choice("provenance", _PROVENANCES, "measured"))
    table.finish()
    try:
        return FunctionLevels(name, seconds, joules, provenance)
    except ValueError as error:
        table.problem("", str(error))
        return None

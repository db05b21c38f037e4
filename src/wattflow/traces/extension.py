"""The ``wattflow`` extension of WfFormat: model values that the schema has no field for, as plain JSON.

A writer puts a field into the extension exactly when reading the standard fields back would give another value, so
whatever the standard cannot hold survives, and nothing is said twice.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from wattflow.model.profile import Provenance
from wattflow.model.workflow import File, Function, Machine, Task, Variant, Workflow
from wattflow.traces.wfformat_schema import Check

KEY = "wattflow"
VERSION = 1
_ELSEWHERE = frozenset({"tasks", "files", "schema_version"})
Record = TypeVar("Record", File, Function, Machine, Task, Variant, Workflow)
# Standard fields hold these in other units (kWh, ISO times), which costs the last digits.
_ROUNDED = frozenset({"energy_j", "start_s"})
_RECORDS = {"Variant": Variant, "Function": Function, "Machine": Machine, "File": File}


def encode(value: object) -> object:
    """Encode a model value as JSON; records leave out fields that have their default."""
    if isinstance(value, Variant | Function | Machine | File):
        return {
            field.name: encode(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.default is dataclasses.MISSING or getattr(value, field.name) != field.default
        }
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    return str(value) if isinstance(value, Provenance) else value


def differing(written: Record, wanted: Record, skip: frozenset[str] = frozenset()) -> dict[str, object]:
    """Return the fields of ``wanted`` that ``written`` does not have, as JSON."""
    return {
        field.name: encode(getattr(wanted, field.name))
        for field in dataclasses.fields(wanted)
        if field.name not in skip and getattr(written, field.name) != getattr(wanted, field.name)
    }


def merged(record: Record, extension: object, where: str, check: Check) -> Record:
    """Put the fields of an extension object over the record.

    Energy and start are in standard fields too, in other units; the extension only holds what rounding took. Where
    the two disagree by more than that, another program changed the standard field, and that wins.
    """
    if extension is None:
        return record
    if not isinstance(extension, dict):
        check.problem(where, f"must be an object, not {type(extension).__name__}")
        return record
    # By the declared type as text: `from __future__ import annotations` leaves no other in
    # `field.type`.
    kinds = {field.name: str(field.type) for field in dataclasses.fields(record) if field.name not in _ELSEWHERE}
    changes: dict[str, Any] = {}
    for key, raw in extension.items():
        if key not in kinds:
            check.problem(f"{where}.{key}", f"is not a field of the extension; known: {', '.join(sorted(kinds))}")
            continue
        value = decode(raw, kinds[key], f"{where}.{key}", check)
        # What another program has changed since in the standard field goes before what we wrote.
        if value is not _BAD and not (key in _ROUNDED and _edited(getattr(record, key), value)):
            changes[key] = value
    return dataclasses.replace(record, **changes) if changes else record


def _edited(standard: object, extension: object) -> bool:
    """Tell whether both are numbers that differ by more than rounding."""
    if not isinstance(standard, float) or not isinstance(extension, float):
        return False
    # Times are written to the microsecond, energy to the last digit of a kWh.
    return abs(standard - extension) > 1e-5 + 1e-9 * max(abs(standard), abs(extension))


_BAD = object()


def decode(raw: object, kind: str, where: str, check: Check) -> object:
    """Decode JSON to the value of a field declared as ``kind``; ``_BAD`` after noting a problem."""
    if raw is None:
        if "None" in kind:
            return None
        check.problem(where, "must not be null")
        return _BAD
    base = kind.replace(" | None", "")
    if base.startswith("tuple["):
        return _decode_list(raw, base.removeprefix("tuple[").split(",")[0], where, check)
    if base in _RECORDS:
        return _decode_record(raw, base, where, check)
    if base.startswith("Mapping"):
        return raw if isinstance(raw, dict) else _bad(check, where, "an object", raw)
    if base == "Provenance":
        known = [str(member) for member in Provenance]
        return Provenance(raw) if raw in known else _bad(check, where, "one of " + ", ".join(known), raw)
    if base == "str":
        return raw if isinstance(raw, str) else _bad(check, where, "text", raw)
    # No number of these records is negative.
    value = check.as_number(raw, where, minimum=0.0)
    if value is None:
        return _BAD
    if base == "int" and isinstance(raw, int | float):  # as `as_number` has found
        # Through `raw`, not `value`: integers above 2**53 must stay exact.
        return int(raw) if float(raw).is_integer() else _bad(check, where, "a whole number", raw)
    return value


def _decode_list(raw: object, item: str, where: str, check: Check) -> object:
    if not isinstance(raw, list):
        return _bad(check, where, "a list", raw)
    values = [decode(value, item, f"{where}[{i}]", check) for i, value in enumerate(raw)]
    return _BAD if any(value is _BAD for value in values) else tuple(values)


def _decode_record(raw: object, name: str, where: str, check: Check) -> object:
    if not isinstance(raw, dict):
        return _bad(check, where, "an object", raw)
    kinds = {field.name: str(field.type) for field in dataclasses.fields(_RECORDS[name])}
    values: dict[str, object] = {}
    for key, value in raw.items():
        if key not in kinds:
            check.problem(f"{where}.{key}", f"is not known; known: {', '.join(kinds)}")
        else:
            values[key] = decode(value, kinds[key], f"{where}.{key}", check)
    missing = [
        field.name
        for field in dataclasses.fields(_RECORDS[name])
        # Fields with a default may be left out, as `encode` does.
        if field.default is dataclasses.MISSING and field.name not in values
    ]
    if missing:
        check.problem(where, f"lacks {', '.join(missing)}")
    if missing or any(value is _BAD for value in values.values()):
        return _BAD
    return _RECORDS[name](**values)


def _bad(check: Check, where: str, wanted: str, raw: object) -> object:
    check.problem(where, f"must be {wanted}, not {shown(raw)}")
    return _BAD


def shown(raw: object) -> str:
    """Cut a value for a message to a readable length."""
    text = repr(raw)
    return text if len(text) <= 60 else text[:57] + "…"

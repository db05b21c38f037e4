"""What other people's code builds on, one line for each part: `python tests/golden/interfaces.py` writes the file."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wattflow.model.interfaces import VERSIONS

NEEDED = " needed"
FILE = Path(__file__).with_name("interfaces.txt")
NAMES = {
    "policy": ["wattflow.policy.base:Policy", "wattflow.policy.base:Plan", "wattflow.policy.base:policy"],
    "view": ["wattflow.policy.view:*", "wattflow.policy.effects:*"],
    "engine": ["wattflow.live.engine:Engine", "wattflow.live.protocol:*"],
    "driver": [
        "wattflow.runtime.drivers.base:*", "wattflow.energy.meters.port:*", "wattflow.traces.registry:Format",
        "wattflow.model.plugins:POLICIES", "wattflow.model.plugins:TRACES", "wattflow.model.plugins:METERS",
        "wattflow.model.plugins:DRIVERS",
    ],
    "messages": ["wattflow.runtime.messages:*"],
}  # fmt: skip


def lines() -> list[str]:
    """Every line of the present code, in order."""
    found = {line for kind, places in NAMES.items() for place in places for line in _at(kind, place)}
    return sorted(found | set(_routes()))


def _at(kind: str, place: str) -> Iterator[str]:
    module_name, _, name = place.partition(":")
    module = importlib.import_module(module_name)
    # What a page gathers from elsewhere is part of it; what a module imports for itself is not.
    gathers = module_name == "wattflow.policy.view"
    for one, value in vars(module).items():
        value = getattr(value, "py_func", value)
        home = getattr(value, "__module__", module_name)
        ours = home == module_name or (gathers and str(home).startswith(("wattflow.policy", "wattflow.engine")))
        if one.startswith("_") or one not in (one if name == "*" else name,) or not ours:
            continue
        if inspect.isclass(value) or inspect.isfunction(value) or isinstance(value, int | str | tuple):
            yield from _of(f"{kind} {one}", value)


def _of(where: str, value: Any) -> Iterator[str]:
    if inspect.isfunction(value):
        yield from _call(where, value)
    elif not inspect.isclass(value):
        yield where
    else:
        fields = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
        fields += [*getattr(value, "__struct_fields__", ()), *getattr(value, "__members__", ())]
        fields += getattr(value, "_fields", ())
        yield from (f"{where}.{name}" for name in (*fields, *_told(value)))
        for name, part in vars(value).items():
            if inspect.isfunction(part) and not name.startswith("_"):
                yield from _call(f"{where}.{name}", part)


def _call(where: str, function: Any) -> Iterator[str]:
    """A function, and each of its parameters; those that a caller must give say so."""
    yield f"{where}()"
    for name, parameter in inspect.signature(function).parameters.items():
        needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        if name != "self":
            yield f"{where}({name}){NEEDED if needed else ''}"


def _told(value: type) -> Iterator[str]:
    """Attributes that a protocol asks for."""
    if getattr(value, "_is_protocol", False):
        yield from (name for name in vars(value).get("__annotations__", {}) if not name.startswith("_"))


def _routes() -> Iterator[str]:
    for name in ("routes", "agent_routes", "admin_routes", "dashboard_routes"):
        for route in importlib.import_module(f"wattflow.server.{name}").router.routes:
            if route.path.startswith("/v1"):
                yield from (f"http {method} {route.path}" for method in sorted(route.methods))


def recorded() -> tuple[dict[str, str], list[str]]:
    """The versions and the lines of the file."""
    head, _, body = FILE.read_text(encoding="utf-8").partition("\n\n")
    return dict(line.split(" ") for line in head.splitlines()), body.splitlines()


def main() -> None:
    """Write the file anew."""
    head = "\n".join(f"{name} {version}" for name, version in VERSIONS.items())
    FILE.write_text(head + "\n\n" + "\n".join(lines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

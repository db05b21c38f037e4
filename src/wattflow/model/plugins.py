"""Policies, trace formats, meters and drivers that other packages bring, found by their entry points.

A package names them in its ``pyproject.toml``; installing it is all that a user does:

    [project.entry-points."wattflow.policies"]
    coolest = "my_package.coolest:COOLEST"

A name of ours stays ours: an entry point that repeats one is passed over, with a note.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from wattflow.model.errors import InvalidInput

log = logging.getLogger(__name__)

POLICIES, TRACES, METERS, DRIVERS = "wattflow.policies", "wattflow.traces", "wattflow.meters", "wattflow.drivers"


@functools.cache
def _installed(group: str) -> Mapping[str, EntryPoint]:
    # By name, not as the path of packages has them: two machines with the same packages list the same.
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}


def names(group: str, ours: Collection[str]) -> list[str]:
    """Return names that other packages bring to a group, in alphabetical order."""
    found = _installed(group)
    for name in found:
        if name in ours:
            _tell_taken(group, name)
    # Ours stay: a package cannot replace a policy that results were published with.
    return [name for name in found if name not in ours]


def load(group: str, name: str, kind: type | None = None) -> Any:
    """Import what an entry point names.

    Raises:
        InvalidInput: It cannot be imported, or is no ``kind``.
    """
    point = _installed(group)[name]
    source = f"{name} of {point.dist.name if point.dist is not None else 'an unknown package'}"
    try:
        value = point.load()
    except Exception as error:  # somebody else's code: whatever it raises is told, with where it comes from
        raise InvalidInput(source, f"{point.value} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (callable(value) if kind is None else isinstance(value, kind)):
        wanted = "callable" if kind is None else f"a {kind.__name__}"
        raise InvalidInput(source, f"the entry point {point.value} of {group} is not {wanted}")
    return value


def usable(group: str, ours: Collection[str], kind: type | None = None) -> dict[str, Any]:
    """Import all that other packages bring to a group; one that cannot be is left out, with a note."""
    found = {}
    for name in names(group, ours):
        try:
            found[name] = load(group, name, kind)
        except InvalidInput as error:
            _tell_broken(str(error))
    return found


# Cached: told once per process, although formats and meters are listed at every call.
@functools.cache
def _tell_broken(why: str) -> None:
    log.warning("%s", why)


@functools.cache
def _tell_taken(group: str, name: str) -> None:
    log.warning("%s: the name %r is taken by wattflow itself; the package's own is passed over", group, name)

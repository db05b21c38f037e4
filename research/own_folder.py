"""A folder of somebody's own workflows for `python -m research learned`: what of it can be used, what was seen before.

Files that are no workflow (notes beside them, a broken download) are left out and named; an application of which
nothing is left is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from wattflow.files.data_folder import data_file
from wattflow.learn import scenarios
from wattflow.model.errors import InvalidInput, MissingData, Problem, WattflowError


def applications(folder: str) -> tuple[str, ...]:
    """The folders in it, one for each application.

    Raises:
        InvalidInput: There is none, or one without a usable workflow; all of these are named.
    """
    root = Path(folder)
    names = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    if not names:
        raise InvalidInput(folder, "has no folder of workflows; make one for each application")
    empty = [name for name in names if not usable(folder, name)]
    if empty:
        raise InvalidInput(folder, [Problem(name, _nothing(folder, name)) for name in empty])
    return tuple(names)


def usable(folder: str, application: str) -> tuple[str, ...]:
    """Files that hold one workflow that is small enough."""
    return _sorted(folder, application)[0]


def left_out(folder: str, names: Sequence[str]) -> list[str]:
    """Files that hold no workflow, and why, in a few words each."""
    return [f"{path}: {why}" for name in names for path, why in _sorted(folder, name)[1]]


def seen_in_training(folder: str, names: Sequence[str]) -> list[str]:
    """Applications that are WfInstances', by their own name or by that of a file: the weights in use have seen them."""
    known = {Path(name).name for name in scenarios.APPLICATIONS}
    files = _stems()
    return [name for name in names if name in known or any(_stem(Path(one)) in files for one in usable(folder, name))]


@cache
def _sorted(folder: str, application: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Usable files, and those that cannot be read with the reason."""
    found, bad = [], []
    for path in sorted((Path(folder) / application).rglob("*.json*")):
        try:
            if len(scenarios.instance(str(path))) <= scenarios.MOST_TASKS:
                found.append(str(path))
        except (WattflowError, OSError, ValueError) as error:
            said = str(error).removeprefix(f"{path}: ").splitlines()
            bad.append((str(path), said[0] if said else type(error).__name__))
    return tuple(found), tuple(bad)


def _nothing(folder: str, application: str) -> str:
    bad = _sorted(folder, application)[1]
    why = "; ".join(f"{Path(path).name}: {said}" for path, said in bad)
    return f"holds no workflow of at most {scenarios.MOST_TASKS} tasks{f' ({why})' if why else ''}"


@cache
def _stems() -> frozenset[str]:
    """Names of the files of WfInstances, where they are here."""
    try:
        return frozenset(_stem(path) for path in data_file("wfinstances").rglob("*.json*"))
    except MissingData:
        return frozenset()


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".json")

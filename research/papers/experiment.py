"""Experiments: one TOML file per published claim, read strictly, run by the module of its kind.

A file has ``kind``, ``about``, ``source``, and the keys of its kind; a key nobody knows is an error with a suggestion.
A kind is a module with ``read(table) -> settings`` and ``run(settings, progress) -> Findings``; one that takes long
also has ``kept_in(settings, folder) -> settings`` and ``expected(settings) -> text``.
"""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from research.papers.findings import Findings, Progress, no_progress
from wattflow.files.strict_table import Problems, StrictTable
from wattflow.files.whole import whole_file, write_text
from wattflow.model.errors import InvalidInput, unknown_name

KINDS = {
    "exde": "research.papers.exde",
    "fgd": "research.papers.fgd_paper",
    "hpe_gpu": "research.papers.hpe_gpu",
    "hpe_table1": "research.papers.hpe_table1",
    "hpe_table2": "research.papers.hpe_table2",
    "job_log": "research.papers.job_log",
    "joulie": "research.papers.joulie_paper",
    "learned": "research.learned_experiment",
    "wfinstances": "research.papers.wfinstances",
}
"""Kind of an experiment → the module that runs it."""

FORMATS = ("png", "svg")
# Without reading the file as TOML: a broken one must not hide the others from the list.
_KIND = re.compile(r"^kind\s*=", re.MULTILINE)


class Kind(Protocol):
    """Functions that the module of a kind offers."""

    read: Callable[[StrictTable], object]
    run: Callable[[object, Progress], Findings]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A file that was read and found right.

    Attributes:
        about, source: What is replayed, and where it was published.
        settings: As the kind's ``read`` made them.
    """

    name: str
    kind: str
    about: str
    source: str
    settings: object


FOLDERS = (Path(__file__).parents[2] / "experiments", Path(__file__).parents[1] / "experiments")
"""Published claims, and ours about the learned policy, which takes longer than all of them together."""


def files() -> dict[str, Path]:
    """Experiments that can be named without a path."""
    paths = (path for folder in FOLDERS for path in sorted(folder.glob("*.toml")))
    return {path.stem: path for path in paths if _KIND.search(path.read_text(encoding="utf-8"))}


def find(name: str) -> Path:
    """The file of an experiment by name or path."""
    path = Path(name)
    if path.suffix == ".toml":
        return path
    known = files()
    if name not in known:
        raise unknown_name("experiment", name, known, "or name a .toml file")
    return known[name]


def load(name: str, workflows: Path | None = None) -> Experiment:
    """Read an experiment by name or path; all problems at once. ``workflows`` takes the place of the file's folder."""
    path = find(name)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), f"is not TOML: {error}") from error
    if workflows is not None:
        data["folder"] = str(workflows.resolve())
    problems = Problems()
    table = StrictTable(data, "", problems)
    # A design lies in the same folder: say what to run instead of naming a missing key.
    if "kind" not in data and "frames" in data:
        raise InvalidInput(str(path), f"is a design of schedulers; run `wattflow lab explore {path}`")
    kind = table.text("kind")
    if kind not in KINDS:
        raise unknown_name("kind of experiment", kind, KINDS)
    about, source = table.text("about"), table.text("source")
    settings = module(kind).read(table)
    table.finish()
    if len(problems):
        raise InvalidInput(str(path), problems.listed())
    return Experiment(path.stem, kind, about, source, settings)


def run(experiment: Experiment, progress: Progress | None = None, keep: Path | None = None) -> Findings:
    """Do what the experiment says.

    ``keep`` is a folder for parts as they are done, of kinds that have any: a run that was ended goes on from them.
    """
    kind, settings = module(experiment.kind), experiment.settings
    # Optional parts of a kind: short experiments have neither.
    if keep is not None and hasattr(kind, "kept_in"):
        settings = kind.kept_in(settings, keep)
    return kind.run(settings, progress or no_progress)


def expected(experiment: Experiment) -> str:
    """How long it will take; empty where the kind does not say (``expected``): it is short then."""
    kind = module(experiment.kind)
    return str(kind.expected(experiment.settings)) if hasattr(kind, "expected") else ""


def write(experiment: Experiment, outcome: Findings, out: Path) -> list[Path]:
    """``results.json`` and the pictures, each whole or not at all; returns what was written."""
    out.mkdir(parents=True, exist_ok=True)
    content = {
        "experiment": experiment.name,
        "about": experiment.about,
        "source": experiment.source,
        "figures": [
            {"name": f.name, "value": f.value, "unit": f.unit, "goal": f.goal, "ok": f.ok} for f in outcome.figures
        ],
        "notes": list(outcome.notes),
        **outcome.results,
    }
    written = [out / "results.json"]
    # NaN would make a file that other programs cannot read.
    write_text(written[0], json.dumps(content, indent=1, allow_nan=False) + "\n")
    for name, draw in outcome.pictures.items():
        for ending in FORMATS:
            target = out / f"{name}.{ending}"
            with whole_file(target) as draft:
                draw(draft)
            written.append(target)
    return written


def module(kind: str) -> Kind:
    """The module of a kind, loaded when used."""
    # Loaded when used: most kinds need packages that not everybody has.
    return cast(Kind, importlib.import_module(KINDS[kind]))

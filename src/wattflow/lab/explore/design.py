"""Read a design: frames × policies × clusters × workloads × seeds, where any axis may be a list."""

from __future__ import annotations

import hashlib
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattflow.files.data_folder import packaged
from wattflow.files.strict_table import Problems, StrictTable
from wattflow.frames import frame_rules, library
from wattflow.frames.frame import Frame
from wattflow.lab.explore.point import OWN, ClusterChoice, DesignPoint, Made, Source, described, key_of, place_of
from wattflow.model.errors import InvalidInput, MissingData

MOST_SEEDS = 10_000
MOST_POINTS = 1_000_000
# Of a delay by choice: its values and weights belong together.
PLAIN_LISTS = frozenset({"values_s", "weights"})
"""Keys of a frame whose value is a list by nature: not axes."""

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Design:
    """A design read from a file.

    Attributes:
        points: In order of workload, seed, cluster, policy, frame; each once.
        axes: Keys inside frames that had several values, in the order of the file.
        skipped: Combinations of frame axes that cannot work, with the reason (only with ``skip_invalid``).
    """

    name: str
    about: str
    points: tuple[DesignPoint, ...]
    axes: tuple[str, ...]
    skipped: tuple[str, ...] = ()

    def levels(self, axis: str) -> list[str]:
        """Labels of ``frame``, ``policy``, ``cluster``, ``workload`` or ``seed``, in order of appearance."""
        return list(dict.fromkeys(label_of(point, axis) for point in self.points))


def label_of(point: DesignPoint, axis: str) -> str:
    """Where a point lies on an axis."""
    match axis:
        case "frame":
            return point.title
        case "design":
            return point.design
        case "policy":
            return point.policy
        case "cluster":
            return point.place.label
        case "workload":
            return point.source.label
        case "seed":
            return str(point.seed)
    return point.factors[axis]


def bundled(name: Path) -> Path:
    """The file of a design that came with the package, by its name; anything else is the path that it says."""
    if name.exists() or name.suffix or len(name.parts) != 1:
        return name
    found = packaged("designs", f"{name}.toml")
    return Path(str(found)) if found.is_file() else name


def read_design(path: str | Path) -> Design:
    """Read a design file.

    Raises:
        InvalidInput: Something is wrong with it; lists every problem with its place.
    """
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(str(path), f"is not TOML: {error}") from error
    return design_of(data, str(path), path.parent, path.stem)


def design_of(data: Mapping[str, object], source: str, folder: Path, name: str = "design") -> Design:
    """A design from a table that has been read already."""
    problems = Problems()
    root = StrictTable(data, "", problems)
    title, about = root.text("name", name), root.text("about", "")
    skip = root.value("skip_invalid")
    if skip is not None and not isinstance(skip, bool):
        problems.add("skip_invalid", f"must be true or false, not {skip!r}")
    frames = _Frames(folder, problems, bool(skip))
    found = frames.read(root)
    policies = _policies(root)
    places = _places(root, folder)
    sources = _sources(root, folder)
    seeds = _seeds(root)
    root.finish()
    if len(problems):
        raise InvalidInput(source, problems.listed())
    # After everything else is right: a workload that cannot be read has no cluster to ask for.
    _check_clusters(places, sources, problems)
    count = len(found) * len(policies) * len(places) * len(sources) * len(seeds)
    # Counted, not listed: a product of long axes would fill the memory before it could be refused.
    if count > MOST_POINTS:
        problems.add("", f"has {count:,} points; at most {MOST_POINTS:,} make sense in one design")
    if len(problems):
        raise InvalidInput(source, problems.listed())
    points = tuple(
        DesignPoint(
            key_of(one.frame, policy, place, load, seed), one.frame, one.design, one.factors, policy, place, load, seed
        )
        # Workload and seed outermost: points that share a drawn workload follow each other.
        for load, seed, place, policy, one in itertools.product(sources, seeds, places, policies, found)
    )
    return Design(title, about, points, tuple(frames.axes), tuple(frames.skipped))


@dataclass(frozen=True, slots=True)
class _Expanded:
    """One frame of the product of its axes."""

    frame: Frame
    design: str
    factors: Mapping[str, str]

    @property
    def title(self) -> str:
        return ", ".join([self.design, *self.factors.values()])


class _Frames:
    """Reads the frames and multiplies their axes out."""

    def __init__(self, folder: Path, problems: Problems, skip_invalid: bool) -> None:
        self.folder, self.problems, self.skip_invalid = folder, problems, skip_invalid
        self.axes: dict[str, None] = {}
        self.skipped: list[str] = []

    def read(self, root: StrictTable) -> list[_Expanded]:
        everywhere = root.value("every_frame") or {}
        if not isinstance(everywhere, Mapping):
            self.problems.add("every_frame", "must be a table of frame keys")
            everywhere = {}
        entries = _listed(root, "frames")
        if not entries:
            self.problems.add("frames", "needs at least one frame: names, files or tables")
        found: list[_Expanded] = []
        for number, entry in enumerate(entries):
            found += self._entry(entry, everywhere, f"frames[{number}]")
        return self._distinct(found)

    def _entry(self, entry: object, everywhere: Mapping[str, Any], where: str) -> list[_Expanded]:
        if isinstance(entry, str):
            entry = {"use": entry}
        if not isinstance(entry, Mapping):
            self.problems.add(where, f"must be a name, a file or a table, not {entry!r}")
            return []
        own = dict(entry)
        base: Mapping[str, Any] = {}
        used = own.pop("use", None)
        try:
            if used is not None:
                base = self._base(used)
        except InvalidInput as error:
            for problem in error.problems:
                self.problems.add(f"{where}.use", str(problem))
            return []
        # The frame's own keys win over those of all frames, and these over the base.
        merged = _merged(_merged(base, everywhere), own)
        merged.setdefault("name", where if used is None else str(used))
        return self._product(merged, where)

    def _base(self, used: object) -> Mapping[str, Any]:
        if not isinstance(used, str):
            raise InvalidInput("use", f"must be the name or the file of a frame, not {used!r}")
        if not used.endswith(".toml"):
            return tomllib.loads(library.frame_text(used))
        path = self.folder / used
        # Read by the usual way first, which says what is wrong with it; the table itself is needed below.
        library.read_frame(path)
        return tomllib.loads(path.read_text(encoding="utf-8"))

    def _product(self, merged: dict[str, Any], where: str) -> list[_Expanded]:
        axes = list(_axes(merged))
        empty = [".".join(path) for path, values in axes if not values]
        for axis in empty:
            self.problems.add(f"{where}.{axis}", "is an axis without values")
        if empty:
            return []
        self.axes |= dict.fromkeys(".".join(path) for path, _ in axes)
        found = []
        for chosen in itertools.product(*(values for _, values in axes)):
            table, factors = merged, {}
            for (path, _), value in zip(axes, chosen):
                value, label = _labelled(".".join(path), value)
                # A copy along the path only: all other parts are shared.
                table = _with(table, path, value)
                factors[".".join(path)] = label
            one = self._one(_without_absent(table), factors, where)
            found += [one] if one is not None else []
        return found

    def _one(self, table: dict[str, Any], factors: dict[str, str], where: str) -> _Expanded | None:
        design = str(table["name"])
        title = ", ".join([design, *factors.values()])
        try:
            # With its axes in the name, so that messages tell which combination they speak of.
            return _Expanded(library.frame_of(table | {"name": title}, where), design, factors)
        except InvalidInput as error:
            # Only combinations of axes are skipped: a frame that is wrong by itself is a mistake.
            if self.skip_invalid and factors:
                self.skipped.append(f"{title}: {'; '.join(str(problem) for problem in error.problems)}")
                return None
            for problem in error.problems:
                self.problems.add(f"{where} ({title})" if factors else where, str(problem))
            return None

    def _distinct(self, found: list[_Expanded]) -> list[_Expanded]:
        titles: set[str] = set()
        contents: dict[str, str] = {}
        for one in found:
            if one.title in titles:
                self.problems.add("frames", f"two frames are called {one.title!r}; give one another name")
            titles.add(one.title)
            # By content, without names: a frame that is listed twice would count twice in every mean.
            content = repr(described(one.frame))
            if content in contents and contents[content] != one.title:
                self.problems.add("frames", f"{one.title!r} and {contents[content]!r} are the same frame")
            contents.setdefault(content, one.title)
        return found


def _axes(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Every key whose value is a list, with its place; tables inside are looked through, lists are not."""
    for key, value in table.items():
        if isinstance(value, list) and key not in PLAIN_LISTS:
            yield (*path, key), value
        elif isinstance(value, Mapping):
            yield from _axes(value, (*path, key))


def _labelled(axis: str, value: Any) -> tuple[Any, str]:
    """The value without its label, and the label: given, or made of the key and the value."""
    # Only a whole section can be switched off; inside one, false is a value.
    if value is False and "." not in axis:
        return _ABSENT, f"no {axis}"
    if not isinstance(value, Mapping):
        return value, f"{axis} {value}"
    label = value.get("label")
    rest = {key: inner for key, inner in value.items() if key != "label"}
    shown = ", ".join(f"{key} {inner}" for key, inner in rest.items()) or "on"
    return rest, label if isinstance(label, str) else f"{axis} ({shown})"


def _with(table: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    inner = value if len(path) == 1 else _with(table[path[0]], path[1:], value)
    return {**table, path[0]: inner}


def _without_absent(table: Mapping[str, Any]) -> dict[str, Any]:
    """Sections that are switched off (``false``) leave the frame."""
    off = [key for key, value in table.items() if value is _ABSENT or (value is False and key in library.SECTIONS)]
    return {key: value for key, value in table.items() if key not in off}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables joined key by key; what stands above wins."""
    joined = dict(below)
    for key, value in above.items():
        old = joined.get(key)
        joined[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return joined


def _listed(root: StrictTable, key: str) -> list[Any]:
    """A list; one value stands for a list of one."""
    value = root.value(key)
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


def _policies(root: StrictTable) -> list[str]:
    names: dict[str, None] = {}
    for number, name in enumerate(_listed(root, "policies") or [frame_rules.DEFAULT]):
        try:
            full = frame_rules.load(str(name)).name
        except InvalidInput as error:
            root.problems.add(f"policies[{number}]", str(error.problems[0]))
            continue
        _add_once(root, names, full, f"policies[{number}]")
    return list(names)


def _add_once(root: StrictTable, names: dict[str, None], name: str, where: str) -> None:
    if name in names:
        root.problems.add(where, f"{name!r} is listed twice")
    names[name] = None


def _places(root: StrictTable, folder: Path) -> list[ClusterChoice]:
    # By label, so that the order of the file stays.
    places: dict[str, ClusterChoice] = {}
    for number, name in enumerate(_listed(root, "clusters") or [OWN]):
        where = f"clusters[{number}]"
        if not isinstance(name, str):
            root.problems.add(where, f"must be a name or a file, not {name!r}")
            continue
        if name in places:
            root.problems.add(where, f"{name!r} is listed twice")
        try:
            places[name] = _place(name, folder)
        except InvalidInput as error:
            for problem in error.problems:
                root.problems.add(where, str(problem))
    return list(places.values())


def _place(name: str, folder: Path) -> ClusterChoice:
    """``own``, hosts × cores as in ``20x4``, a preset or a file."""
    from wattflow.clusters import load_cluster, read_cluster
    from wattflow.frames.workloads import frame_cluster

    hosts, _, cores = name.partition("x")
    if name == OWN:
        return ClusterChoice(name)
    # Before files: "20x4" is no file's name.
    if hosts.isdecimal() and cores.isdecimal() and int(hosts) and int(cores):
        return place_of(name, frame_cluster(int(hosts), int(cores)))
    if name.endswith(".toml"):
        return place_of(name, read_cluster(folder / name))
    return place_of(name, load_cluster(name))


def _sources(root: StrictTable, folder: Path) -> list[Source]:
    entries = _listed(root, "workloads")
    if not entries:
        root.problems.add("workloads", "needs at least one workload, such as 'skewed:tasks=20000'")
    sources: dict[str, Source] = {}
    for number, entry in enumerate(entries):
        where = f"workloads[{number}]"
        for text in _texts(root, entry, where):
            if text in sources:
                root.problems.add(where, f"{text!r} is listed twice")
            try:
                sources[text] = source_of(text, folder)
            except (InvalidInput, MissingData) as error:
                root.problems.add(where, str(error))
    return list(sources.values())


def _texts(root: StrictTable, entry: object, where: str) -> list[str]:
    """A text as it is; a table ``{make = "ibm-like", trace = [0, 1], …}`` multiplied out to texts."""
    if isinstance(entry, str):
        return [entry]
    if not isinstance(entry, Mapping) or not isinstance(entry.get("make"), str):
        root.problems.add(where, f"must be a text, or a table with 'make', not {entry!r}")
        return []
    keys = [key for key in entry if key != "make"]
    values: list[Sequence[object]] = [v if isinstance(v := entry[key], list) else [v] for key in keys]
    rows = [",".join(f"{key}={value}" for key, value in zip(keys, row)) for row in itertools.product(*values)]
    return [f"{entry['make']}:{row}" if row else str(entry["make"]) for row in rows]


def source_of(text: str, folder: Path) -> Source:
    """``ibm-like:trace=3,tasks=20000``, ``skewed:tasks=…``, ``azure-2021``, a family, a bundled demo or a trace."""
    from wattflow.generate import DEMOS, FAMILIES
    from wattflow.generate.recipe import Recipe

    kind, _, rest = text.partition(":")
    if kind in ("ibm-like", "skewed"):
        made = _made(kind, rest)
        # What makes it is its content: a recipe is known by its numbers.
        return Source(text, repr(made), made)
    if text == "azure-2021":
        from wattflow.files.data_folder import data_file
        from wattflow.frames.workloads import azure_2021

        path = data_file("serverless", "azure2021_invocation_sample.csv")
        # By the file's bytes: a trace of the same name may have changed.
        return Source(text, _content(path), azure_2021(path.parents[1]))
    if kind == "demo" and rest in DEMOS:
        return Source(text, repr(DEMOS[rest]), DEMOS[rest])
    if kind in FAMILIES:
        recipe = Recipe.parse(text)
        return Source(text, repr(recipe), recipe)
    path = folder / text
    if not path.exists():
        known = ", ".join(("ibm-like", "skewed", "azure-2021", *FAMILIES))
        raise InvalidInput(text, f"is neither a trace file nor a generated workload; these are {known}")
    from wattflow import traces

    return Source(text, _content(path), traces.load(path))


def _content(path: Path) -> str:
    """Hash of a file, or of all files of a folder."""
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
        # Names, too: two files that change places are another folder.
        digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


_MADE_KEYS = {"ibm-like": {"trace": (0, 53), "tasks": (1, 10**9)}, "skewed": {"tasks": (1, 10**9), "hosts": (1, 10**6)}}


def _made(kind: str, rest: str) -> Made:
    allowed = _MADE_KEYS[kind]
    problems, facts = Problems(), {"tasks": 3_000_000 if kind == "ibm-like" else 500_000}
    for item in filter(None, (piece.strip() for piece in rest.split(","))):
        key, _, value = item.partition("=")
        if key not in allowed:
            problems.add(key, f"{kind} knows only {', '.join(allowed)}")
        elif not value.isdecimal() or not allowed[key][0] <= int(value) <= allowed[key][1]:
            problems.add(key, f"must be a whole number from {allowed[key][0]} to {allowed[key][1]:,}, not {value!r}")
        else:
            facts[key] = int(value)
    if len(problems):
        raise InvalidInput(f"{kind}:{rest}", problems.listed())
    return Made(kind, **facts)


def _seeds(root: StrictTable) -> list[int]:
    """A list of numbers, or how many from 0 on."""
    value = root.value("seeds")
    if value is None:
        return [0]
    if isinstance(value, int) and value > MOST_SEEDS:
        root.problems.add("seeds", f"must be at most {MOST_SEEDS:,}, not {value}")
        return [0]
    numbers = value if isinstance(value, list) else list(range(value)) if isinstance(value, int) else None
    # bool is a kind of int in Python.
    good = numbers and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 63 for n in numbers)
    if not numbers or not good or isinstance(value, bool):
        root.problems.add("seeds", f"must be a list of whole numbers, or how many from 0 on, not {value!r}")
        return [0]
    if len(set(numbers)) < len(numbers):
        root.problems.add("seeds", "a seed is listed twice")
    return list(dict.fromkeys(numbers))


def _check_clusters(places: list[ClusterChoice], sources: list[Source], problems: Problems) -> None:
    if any(place.cluster is None for place in places):
        for source in sources:
            if not isinstance(source.made, Made):
                problems.add("clusters", f"{source.label!r} brings no cluster of its own; name clusters such as '20x4'")

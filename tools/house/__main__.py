"""Prints how simple the house is (`make house`): one line per figure, those that fall short included.

    python tools/house [--before REF] [--no-kernels]

Counts come from the syntax trees of ``src``, lines of each package also from ``--before``; the wheel is the one of
`make dist`. Nanoseconds and code bytes are those of `benchmarks/kernel_fence.py` against a checkout of ``--before`` in
a temporary worktree (minutes, once the compile caches are warm); what was not measured is said to be so. The share of
planted faults that the tests noticed is read from the results of `make mutants` where they are there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sources

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "9bf97a3a8098dd62c8fd46d24a053b185de582dc"
"""The last commit of 0.1.0, which kernels and lines are compared with."""
OWN = (
    "wheel", "life", "guard", "book", "words2", "house", "house1", "lean", "main into book", "main into house",
    "main into judge", "integ into trust-a",
    "Merge: entry points, one list of meters, versions of what others build on",
)  # fmt: skip
"""Merges of the work that made the house simple, some of them the other way round.

Mixed in: the book and the recipes for other packages are features, the vocabulary's merge also brought 27 lines of the
gate, and what `wheel` and `book` took away lies partly in research/ now.
"""
ALONE = {
    "8b276fa69a": "modules joined, what only papers need moved to research/; whole, though Kubernetes' part added 700",
    "83a2307085": "invariants beside their lines, docstrings that begin with a verb",
    "473ca4f50c": "docstrings", "b24a86b1c2": "docstrings", "be6d70474b": "docstrings", "042e10a9e0": "docstrings",
    "a02d2c7cec": "docstrings", "0b3df950ec": "docstrings", "7ea7a85d13": "the network's last words",
    "22511bde01": "circles of modules", "482b30ae7a": "one form of a pod's CPU", "788c9731c8": "private names",
    "2ceccf702c": "class names", "fa6cbc433d": "needless type: ignore", "db490e4634": "what the wheel loads and holds",
    "689ad10c2a": "names in tests", "f1f904d66a": "options without a test", "78f414a542": "Python 3.13",
}  # fmt: skip
"""Commits of that work that no merge brought, and what each did, judged by message and diff; all others stand apart."""
NOT_PHYSICS = ("wattflow.frames",)
MUTANTS = ROOT / "out" / "mutants"


def figure(name: str, value: float | str, unit: str, goal: str, ok: bool) -> None:
    """Print one line."""
    shown = value if isinstance(value, str) else f"{value:.4g}" if isinstance(value, float) else str(value)
    sys.stdout.write(f"figure {name} {shown} {unit} goal {goal} {'ok' if ok else 'short'}\n")


def count(name: str, found: list[str], goal: int, unit: str = "-") -> None:
    """Print how many there are, and which: they are what is left to do."""
    for one in found if len(found) > goal else ():
        sys.stdout.write(f"  {name}: {one}\n")
    figure(name, len(found), unit, f"≤{goal}" if goal else "0", len(found) <= goal)


def shape() -> None:
    """Print what the syntax trees say."""
    known = sources.modules(ROOT / "src")
    every = list(known.values())
    many = sources.lines(every)
    figure("house_lines", many, "lines", "≤83000", many <= 83_000)
    figure("house_statements", sources.statements(every), "statements", "none", True)
    # An instant ends where the policy's last call is made, so who makes it is a loop of instants.
    count("house_instant_loops", sources.callers(known, "functions", "act", NOT_PHYSICS), 1)
    timed = sources.built(known, "heaps", "of_rows", (*NOT_PHYSICS, "wattflow.policy"))
    count("house_heaps_of_timed_events", timed, 1)
    count("house_private_uses_across_packages", sources.private_uses(known), 0)
    count("house_module_cycles", [" ↔ ".join(some) for some in sources.cycles(known)], 0)
    share = sources.comment_share(every)
    figure("house_comment_share", share, "%", "≥3", share >= 3.0)
    names = sources.equal_names(every)
    count("house_file_names_used_more_than_once", [f"{name} × {times}" for name, times in names.items()], 20)


def by_package(ref: str) -> None:
    """Print the lines of each package before and now, and what those that shrank have lost together.

    The goal of the total is for the work of simplifying alone; other work has made packages longer meanwhile.
    """
    if not is_there(ref):
        figure("house_lines_gone_where_fewer", "not-measured", "lines", "none", True)
        return
    now = {place: sources.lines(some) for place, some in sources.by_package(ROOT / "src").items()}
    with checkout(ref) as before:
        then = {place: sources.lines(some) for place, some in sources.by_package(before / "src").items()}
    for place in sorted(now.keys() | then.keys(), key=lambda one: now.get(one, 0) - then.get(one, 0)):
        less, more = then.get(place, 0), now.get(place, 0)
        sys.stdout.write(f"  house_lines: {place} {less} → {more} ({more - less:+d})\n")
    gone = sum(max(0, then[place] - now.get(place, 0)) for place in then)
    figure("house_lines_gone_where_fewer", gone, "lines", "none", True)
    figure("house_lines_come_where_more", sum(now.values()) - sum(then.values()) + gone, "lines", "none", True)


def by_branch(ref: str) -> None:
    """Print the net lines of the commits since ``ref`` by the branch that brought them, and those of our own work.

    What no merge brought and is not ours by `ALONE` mended and added other things, and stands apart.
    """
    if not is_there(ref):
        figure("house_lines_of_own_work", "not-measured", "lines", "≤-8000", False)
        return
    lines = sources.lines_by_branch(ROOT, ref, dict.fromkeys(ALONE, "ours, no branch"))
    own = (*OWN, "ours, no branch")
    for name, many in sorted(lines.items(), key=lambda one: one[1]):
        sys.stdout.write(f"  house_lines_of_branches: {name} {many:+d}{' (own)' if name in own else ''}\n")
    figure("house_lines_of_no_branch", lines["no branch"], "lines", "none", True)
    many = sum(lines[name] for name in own)
    figure("house_lines_of_own_work", many, "lines", "≤-8000", many <= -8000)


def wheel() -> None:
    """Build the wheel as it is shipped and print its size."""
    with tempfile.TemporaryDirectory() as scratch:
        build = ["sh", str(ROOT / "scripts" / "build-dist.sh"), sys.executable, scratch]
        if subprocess.run(build, capture_output=True).returncode:
            missing("house_wheel", "MB", "≤1.8")
            return
        (built,) = Path(scratch).glob("*.whl")
        size = built.stat().st_size / 1e6
    figure("house_wheel", size, "MB", "≤1.8", size <= 1.8)


@contextmanager
def checkout(ref: str) -> Iterator[Path]:
    """A worktree of another commit, removed afterwards."""
    folder = Path(tempfile.mkdtemp()) / "before"
    subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "-q", "--detach", str(folder), ref], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(folder)], check=True)
        shutil.rmtree(folder.parent, ignore_errors=True)


def kernels(ref: str) -> None:
    """Print ns per task and code bytes of the kernels against those of before."""
    fence = ROOT / "benchmarks" / "kernel_fence.py"
    if not fence.is_file() or not is_there(ref):
        missing("house_ns_per_task", "ratio", "≤1.03")
        missing("house_code_bytes", "ratio", "≤1.05")
        return
    with checkout(ref) as before:
        done = subprocess.run([sys.executable, str(fence), str(before)], stdout=subprocess.PIPE, text=True)
    for line in done.stdout.splitlines():
        sys.stdout.write(f"{line}\n")
    if done.returncode:
        missing("house_ns_per_task", "ratio", "≤1.03")


def is_there(ref: str) -> bool:
    """Tell whether git knows a commit by this name."""
    asked = ["git", "-C", str(ROOT), "rev-parse", "-q", "--verify", f"{ref}^{{commit}}"]
    return subprocess.run(asked, capture_output=True).returncode == 0


def mutants() -> None:
    """Print the share of planted faults that were noticed in the two rooms that everybody passes."""
    for room in ("live", "runtime_service"):
        name, path = f"house_faults_noticed_{room}", MUTANTS / room / "share.json"
        if not path.is_file():
            missing(name, "%", "≥90")
            continue
        found = json.loads(path.read_text(encoding="utf-8"))
        share = 100.0 * found["share"]
        unit = f"%_of_{found['counted']}_of_seed_{found['seed']}"
        figure(name, share, unit, "≥90", share >= 90.0 and found["done"])


def missing(name: str, unit: str, goal: str) -> None:
    """Say that a figure was not measured; it falls short then."""
    figure(name, "not-measured", unit, goal, False)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=BEFORE, help="commit or tag that kernels and lines are compared with")
    parser.add_argument("--no-kernels", action="store_true", help="leave the kernels out: seconds instead of minutes")
    given = parser.parse_args()
    shape()
    by_package(given.before)
    by_branch(given.before)
    wheel()
    if given.no_kernels:
        missing("house_ns_per_task", "ratio", "≤1.03")
        missing("house_code_bytes", "ratio", "≤1.05")
    else:
        kernels(given.before)
    mutants()


if __name__ == "__main__":
    main()

"""Runs the ```console blocks of a Markdown page and compares what they print with what the page shows.

In a block, ``$ `` starts a command and the lines below it are its output. A line ``…`` stands for any lines, ``…``
within a line for any text. Numbers may differ by 2 %; times per decision (µs) may be anything. A command without
output lines only has to end well, and ``# exit N`` at its end names another exit code. After a comment ``<!-- any
numbers … -->`` the lines shown may come in any order with any numbers: only their first words are compared.

``python tests/e2e/docs_runner.py --update README.md docs/tutorial.md`` writes the present output into the pages.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^(<!-- any numbers[^\n]*-->\n)?```console\n(.*?)^```$", re.M | re.S)
NUMBER = re.compile(r"[+−-]?\d[\d,]*(?:\.\d+)?")
TOLERANCE = 0.02
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
"""Commands run this source wherever they run."""


@dataclass(frozen=True)
class Step:
    """One command and the output that the page shows."""

    command: str
    expected: tuple[str, ...]
    exit_code: int
    loose: bool = False


def steps_of(text: str) -> Iterator[Step]:
    """The commands of all blocks, in order."""
    for loose, block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *output = part.rstrip("\n").split("\n")
            code = re.search(r"#\s*exit (\d+)$", command)
            yield Step(command, tuple(output), int(code[1]) if code else 0, bool(loose))


def matches(expected: str, actual: str) -> bool:
    """Whether a line is as shown, numbers within tolerance."""
    if "…" in expected:
        pattern = ".*".join(_loose(piece) for piece in expected.split("…"))
        return re.fullmatch(pattern, actual.rstrip()) is not None
    if NUMBER.sub("#", expected).split() != NUMBER.sub("#", actual).split():
        return False
    loose = [match.end() for match in NUMBER.finditer(expected) if expected[match.end() :].startswith(" µs")]
    pairs = zip(NUMBER.finditer(expected), NUMBER.findall(actual), strict=True)
    return all(want.end() in loose or _close(want[0], got) for want, got in pairs)


def _loose(piece: str) -> str:
    return r"\s+".join(re.escape(word) for word in re.split(r"\s+", piece.rstrip()))


def _close(want: str, got: str) -> bool:
    a, b = (float(text.replace(",", "").replace("−", "-")) for text in (want, got))
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) + 0.051 * ("." in want)


def begins_alike(expected: tuple[str, ...], actual: list[str]) -> str | None:
    """What is wrong where only the first word of each shown line counts, or None."""
    words = {line.split()[0] for line in actual if line.strip()}
    missing = [line for line in expected if line.strip() and line.split()[0] not in words]
    return f"the page shows {missing[0]!r}, no line of the command begins so" if missing else None


def follows(expected: tuple[str, ...], actual: list[str]) -> str | None:
    """What is wrong with the output, or None. Blank lines do not count."""
    lines = [line for line in actual if line.strip()]
    at, anywhere = 0, False
    for wanted in (line for line in expected if line.strip()):
        if wanted.strip() == "…":
            anywhere = True
            continue
        while anywhere and at < len(lines) and not matches(wanted, lines[at]):
            at += 1
        if at >= len(lines) or not matches(wanted, lines[at]):
            return f"the page shows {wanted!r}, the command prints {lines[at] if at < len(lines) else 'nothing'!r}"
        at, anywhere = at + 1, False
    if expected and not anywhere and at < len(lines):
        return f"the command also prints {lines[at]!r}"
    return None


def run(step: Step, folder: Path, programs: Path) -> tuple[int, list[str]]:
    """Run in the folder, with a `wattflow` that is this source's; both streams together."""
    changed = {"PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "120", "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(step.command, shell=True, cwd=folder, env=ENVIRONMENT | changed, text=True, timeout=600,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    return done.returncode, done.stdout.splitlines()


def programs_in(folder: Path) -> Path:
    """A folder with `wattflow` and `python` that run this source."""
    folder.mkdir(exist_ok=True)
    for name, arguments in (("wattflow", "-m wattflow.cli"), ("python", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def main() -> None:
    """Write the present output of every command that shows some into the pages."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--update", nargs="+", type=Path, required=True)
    for page in parser.parse_args().update:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as name:
            programs = programs_in(Path(name) / "bin")
            for step in steps_of(text):
                _, output = run(step, Path(name), programs)
                stale = step.loose or follows(step.expected, output) is not None
                if step.expected and stale and "…" not in "".join(step.expected):
                    old = "\n".join((f"$ {step.command}", *step.expected))
                    text = text.replace(old, "\n".join((f"$ {step.command}", *(line.rstrip() for line in output))))
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

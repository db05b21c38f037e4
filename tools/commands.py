"""Writes docs/commands.md: every command and option as the code has them; and lists options that no test types.

python tools/commands.py           # writes the page
python tools/commands.py --check   # ends with 1 where the page is old
python tools/commands.py --untested
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "commands.md"
TABLE = ("| option | what it says |", "|---|---|")
SHARED = 3
"""Commands from which on an option is described once for all of them."""
TRIED_IN = ("tests", "benchmarks", "research", "make", ".ci", "examples")
HEAD = """# Commands

What can be typed, and every option:

```sh
wattflow --help                # what is needed first, then nouns with the rest below them
wattflow workload --help       # the commands of a noun
wattflow compare --help        # one command with its options and an example
```

This page is made from the code (`python tools/commands.py`) and says the same. Commands of 0.1 that have moved below a
noun are accepted where they were for one release more.
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that is listed, by the words that call it."""
    from wattflow.cli.main import app

    yield from _below("wattflow", typer.main.get_command(app))


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for name, one in command.commands.items():
            if not one.hidden:
                yield from _below(f"{words} {name}", one)
    else:
        yield words, command


def page() -> str:
    """The page as text: options that several commands share are described once, above them."""
    found = list(commands())
    counts = Counter(row for _, command in found for one in command.params if (row := _row(one)))
    shared = {row for row, count in counts.items() if count >= SHARED and row.startswith("| `")}
    common = ["## Options of several commands", *TABLE, *sorted(shared), ""]
    return "\n".join([HEAD, *common, *(_section(words, command, shared) for words, command in found)])


def _section(words: str, command: Any, shared: set[str]) -> str:
    said = re.sub(r"\s+", " ", (command.help or "").split("\n\n")[0]).strip()
    lines = [f"## `{words}`", said, ""]
    rows = [row for one in command.params if (row := _row(one))]
    own = [row for row in rows if row not in shared]
    if own:
        lines += [*TABLE, *own, ""]
    if also := [row.split(" | ")[0].removeprefix("| ") for row in rows if row in shared]:
        lines += [f"Also: {', '.join(also)}.", ""]
    return "\n".join(lines)


def _row(one: Any) -> str:
    said = re.sub(r"\s+", " ", getattr(one, "help", "") or "").replace("|", "\\|").strip()
    if getattr(one, "hidden", False):
        return ""
    if one.param_type_name == "argument":
        shown = (one.metavar or one.name.upper()).replace("|", "\\|")
        return f"| {shown} | {said} |"
    names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    return f"| {names} | {said} |"


def options() -> Iterator[tuple[str, Any]]:
    """Every option of every listed command, by the words that call it."""
    for words, command in commands():
        yield from ((words, one) for one in command.params if one.param_type_name == "option" and one.name != "help")


def unsaid() -> list[str]:
    """Options without a line: the page would name them and say nothing."""
    return [f"{words} {'/'.join(one.opts)}" for words, one in options() if not getattr(one, "help", "")]


def untested() -> list[str]:
    """Options that nothing types in any spelling: neither tests nor benchmarks, make or examples."""
    texts = [
        path.read_text(encoding="utf-8", errors="ignore")
        for folder in TRIED_IN
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in (".py", ".mk", ".sh", ".md", ".yaml", "")
    ]
    typed = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", "\n".join(texts)))
    return [f"{words} {'/'.join(one.opts)}" for words, one in options() if not typed & {*one.opts, *one.secondary_opts}]


def main() -> int:
    """Write, compare or list."""
    if "--untested" in sys.argv:
        sys.stdout.write("\n".join(untested()) + "\n")
        return 0
    text = page()
    if "--check" in sys.argv:
        return int(not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

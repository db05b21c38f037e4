"""Wrap the prose of Markdown pages at 120 columns. Tables, code, headings and comments stay as they are.

    python tools/wrap_docs.py docs/*.md          # writes
    python tools/wrap_docs.py --check docs/*.md  # names what is too wide, and ends with 1

Only paragraphs and list items with a line that is too wide are wrapped anew, so that a page's history stays readable.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

WIDTH = 120
ITEM = re.compile(r"^(\s*)([-*]|\d+\.)\s+")
FIXED = re.compile(r"^\s*([|#<>!]|\[[^\]]+\]:|```|---|===|$)")


def blocks(lines: list[str]) -> Iterator[tuple[list[str], bool]]:
    """Paragraphs and list items; each line of anything else is a block of its own, and fixed."""
    block: list[str] = []
    fenced = False
    for line in lines:
        fence = line.lstrip().startswith("```")
        fixed = fenced or fence or FIXED.match(line) or (not block and line.startswith("    "))
        if block and (fixed or ITEM.match(line)):
            yield block, False
            block = []
        if fixed:
            yield [line], True
        else:
            block.append(line)
        fenced ^= fence
    if block:
        yield block, False


def wrapped(block: list[str]) -> list[str]:
    """The block as it is, or at our width where a line is too wide."""
    if max(map(len, block)) <= WIDTH:
        return block
    found = ITEM.match(block[0])
    first = found[0] if found else re.match(r"\s*", block[0])[0]  # type: ignore[index]
    rest = " " * len(first)
    text = " ".join(" ".join(block).split())
    body = text[len(first.strip()) :].strip() if found else text
    return textwrap.wrap(
        body, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def main() -> None:
    """Wrap the files named, or check them."""
    check, names = "--check" in sys.argv, [name for name in sys.argv[1:] if not name.startswith("--")]
    wide = 0
    for name in names:
        path = Path(name)
        before = path.read_text(encoding="utf-8").split("\n")
        after = [line for block, fixed in blocks(before) for line in (block if fixed else wrapped(block))]
        if before != after:
            wide += 1
            print(f"{name}: {'has lines wider than' if check else 'wrapped at'} {WIDTH} columns")
        if not check:
            path.write_text("\n".join(after), encoding="utf-8")
    if check and wide:
        sys.exit(1)


if __name__ == "__main__":
    main()

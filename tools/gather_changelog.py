"""Gather the lines of changelog.d/ into CHANGELOG.md, under the present version; the gathered files are removed.

python tools/gather_changelog.py
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


LATER = "### Also"
"""Heading of what is gathered after a version's lines were put in groups by hand."""


def gathered(version: str, page: str, parts: list[str]) -> str:
    """The page with a section of this version: what stood there under it stays and comes first."""
    lines = "\n".join(line for part in parts for line in items(part))
    head, _, rest = page.partition("\n## ")
    heading, _, body = rest.partition("\n")
    if heading.strip() != version:
        return f"{head}\n## {version}\n\n{lines}\n\n## {rest}".rstrip() + "\n"
    kept, mark, older = body.partition("\n## ")
    if "\n### " in kept and LATER not in kept:
        lines = f"\n{LATER}\n{lines}"
    return f"{head}\n## {version}\n{kept.rstrip()}\n{lines}\n{mark}{older}".rstrip() + "\n"


def items(text: str) -> list[str]:
    """Entries of one file, wrapped; what stands before the first dash is one, too."""
    found = [one for one in re.split(r"^- ", text, flags=re.M) if one.strip()]
    return [
        textwrap.fill(" ".join(one.split()), 120, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False,
                      break_long_words=False)
        for one in found
    ]  # fmt: skip


def main() -> int:
    """Gather; nothing to gather is no error."""
    version = re.search(r'^__version__ = "(.+)"', (ROOT / "src/wattflow/__init__.py").read_text(), re.M)
    assert version is not None
    files = sorted((ROOT / "changelog.d").glob("*.md"))
    page = ROOT / "CHANGELOG.md"
    if files:
        texts = [file.read_text(encoding="utf-8") for file in files]
        page.write_text(gathered(version[1], page.read_text(encoding="utf-8"), texts), encoding="utf-8")
    for file in files:
        file.unlink()
    print(f"{len(files)} files gathered under {version[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

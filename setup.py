"""Everything about the package stands in pyproject.toml; this adds the pages of docs/ to what is built."""

from __future__ import annotations

import bz2
import json
import lzma
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

DOCS = Path(__file__).parent / "docs"
LEFT_OUT = (
    "changelog", "commands", "contributing", "design", "experiments", "experiments-traces", "frames-notes", "kernel",
    "kube-rig", "measured", "page-routes", "prediction-notes", "promise", "research-notes", "weaknesses", "where",
)  # fmt: skip
"""Pages for those who have the source, and one that `--help` says as well: the wheel stays small without them."""


class BuildWithPages(build_py):
    """Also packs the pages into one file, which `wattflow docs` reads, and the dashboard's script."""

    def run(self) -> None:
        super().run()
        if getattr(self, "editable_mode", False) or not DOCS.is_dir():
            return
        pages = {
            page.name: page.read_text(encoding="utf-8")
            for page in sorted(DOCS.glob("*.md"))
            if page.stem not in LEFT_OUT
        }
        target = Path(self.build_lib) / "wattflow" / "data" / "pages.json.bz2"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bz2.compress(json.dumps(pages, ensure_ascii=False).encode()))
        for script in (target.parent / "web" / "assets").glob("*.js"):
            script.with_name(f"{script.name}.xz").write_bytes(lzma.compress(script.read_bytes(), preset=9))
            script.unlink()


setup(cmdclass={"build_py": BuildWithPages})

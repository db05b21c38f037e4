"""For mkdocs: pages and sections stand in docs/index.md alone, which `wattflow docs` goes by too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wattflow.cli.book import sections


def on_config(config: Any) -> Any:
    """Make the site's navigation from the page of contents."""
    text = (Path(config["docs_dir"]) / "index.md").read_text(encoding="utf-8")
    nav: list[Any] = [{"Home": "index.md"}]
    for title, pages in sections(text).items():
        nav.append({title: [{name: page} for name, page in pages]})
    config["nav"] = nav
    return config

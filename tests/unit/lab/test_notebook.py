"""The notebook of the docs was executed, and its cells still run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from e2e.docs_runner import follows

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "first-hour.ipynb"


def notebook() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PAGE.read_text(encoding="utf-8"))
    return found


def executor() -> Any:
    spec = importlib.util.spec_from_file_location("run_notebook", ROOT / "tools" / "run_notebook.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_holds_outputs_of_an_execution() -> None:
    cells = [cell for cell in notebook()["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {kind for cell in cells for out in cell["outputs"] for kind in out.get("data", ())}
    assert {"text/plain", "text/html", "image/png"} <= kinds


def text_of(output: dict[str, Any]) -> list[str]:
    """Return what an output shows as text, line by line; a picture is a word."""
    return "".join(output.get("text", ()) or output["data"]["text/plain"]).splitlines()


@pytest.mark.slow
def test_its_cells_still_run_and_show_what_is_stored() -> None:
    stored = notebook()
    fresh = executor().execute(notebook())
    for before, after in zip(stored["cells"], fresh["cells"], strict=True):
        if before["cell_type"] == "code":
            for old, new in zip(before["outputs"], after["outputs"], strict=True):
                assert sorted(old.get("data", ("stream",))) == sorted(new.get("data", ("stream",)))
                assert (wrong := follows(tuple(text_of(old)), text_of(new))) is None, f"make notebook: {wrong}"

"""Execute a notebook in place, without Jupyter: each code cell in one namespace, its prints and its last value kept.

    python tools/run_notebook.py docs/first-hour.ipynb

Prints become a stream, the last expression its text, its HTML where it shows itself in notebooks, and a picture where
it is a figure. A cell that fails ends the run with its traceback and leaves the file as it was.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with fresh outputs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        number += 1
        printed, value = run("".join(cell["source"]), names)
        cell["execution_count"] = number
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": lines(printed)}] if printed else []
        if value is not None:
            shown = {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": display(value)}
            cell["outputs"].append(shown)
    return notebook


def run(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and the value of its last line where that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "<cell>", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    return out.getvalue(), value


def display(value: Any) -> dict[str, Any]:
    """A value in the forms that a notebook knows."""
    data: dict[str, Any] = {"text/plain": lines(repr(value))}
    html = value._repr_html_() if hasattr(value, "_repr_html_") else None
    if html:
        data["text/html"] = lines(html)
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, format="png", dpi=80, metadata={"Software": None})
        data["image/png"] = base64.b64encode(picture.getvalue()).decode()
        data["text/plain"] = ["<Figure>"]
    return data


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Execute every notebook named."""
    for name in sys.argv[1:]:
        path = Path(name)
        done = execute(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

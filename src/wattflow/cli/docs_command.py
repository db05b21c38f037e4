"""`wattflow docs`: these pages, without a network."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from wattflow.cli.screen import open_page, remark
from wattflow.model.errors import InvalidInput, unknown_name


def docs(
    page: Annotated[
        str, typer.Argument(metavar="PAGE", help="One page, such as runtime; else the contents.")
    ] = "index",
    listed: Annotated[bool, typer.Option("--list", help="List the pages instead.")] = False,
    text: Annotated[bool, typer.Option("--text", help="Print the page as text instead.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write all pages as HTML into this new folder.")
    ] = None,
) -> None:
    """Open the documentation in a browser; it came with the package and needs no network.

    Example: wattflow docs runtime
    """
    from wattflow.cli import book

    every = book.pages()
    if listed:
        for title, pages in book.sections(every[book.CONTENTS]).items():
            typer.echo("\n".join([title, *(f"  {Path(name).stem:20} {shown}" for shown, name in pages)]))
        return
    if f"{page}.md" not in every:
        raise unknown_name("page", page, [Path(name).stem for name in every])
    if text:
        typer.echo(every[f"{page}.md"], nl=False)
        return
    # A folder with something in it may be the user's own.
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(str(out), "is there already; name a folder that is not, or an empty one")
    folder = out or Path(tempfile.mkdtemp(prefix="wattflow-docs-"))
    count = book.write(folder)
    remark(f"{count} pages in {folder}")
    if out is None:
        open_page(folder / f"{page}.html")

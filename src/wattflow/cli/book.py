"""The pages of docs/ as HTML that needs no network: packed into the wheel, rendered where they are read.

The site of `make docs` has the same pages in the same order; this is the plain edition, without search.
"""

from __future__ import annotations

import importlib
import inspect
import re
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from wattflow.cli.screen import open_page, remark
from wattflow.model.errors import InvalidInput, WattflowError, unknown_name

# Only of a checkout; a wheel has the packed pages.
SOURCE = Path(__file__).parents[3] / "docs"
CONTENTS = "index.md"
STYLE = """
body { margin: 0; display: flex; font: 16px/1.55 system-ui, sans-serif; color: #1b1f24; background: #fff }
nav { flex: 0 0 15rem; height: 100vh; overflow: auto; position: sticky; top: 0; padding: 1rem; font-size: .9rem }
nav, pre { background: #f3f6f6 }
nav h4 { margin: 1rem 0 .2rem }
nav a { display: block; color: inherit; text-decoration: none; padding: .1rem 0 }
nav a.here { font-weight: 700 }
a, nav a:hover { color: #00695c }
main { max-width: 52rem; padding: 1rem 2rem; min-width: 0 }
pre { padding: .8rem; overflow: auto }
code { font-size: .9em }
table { border-collapse: collapse; display: block; overflow: auto }
td, th { border: 1px solid #ccd5d5; padding: .25rem .5rem; text-align: left; vertical-align: top }
@media (max-width: 50rem) { body { display: block } nav { height: auto; position: static } }
@media (prefers-color-scheme: dark) {
  body { background: #14181b; color: #d8dee3 } nav, pre { background: #1e2428 } a, nav a:hover { color: #4db6ac }
}
"""
# Links between pages only: those with a scheme are left as they are.
_LINK = re.compile(r"\]\((?!\w+:)([\w.-]+)\.md(#[\w-]*)?\)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(pictures/[^)]+\)")
_OBJECT = re.compile(r"^::: ([\w.]+)$", re.M)


def pages() -> dict[str, str]:
    """Return every page by file name: those of the package, or of the source tree that this is run from."""
    # Here, not above: `wattflow --help` loads this module with all commands, and must stay quick.
    import bz2
    import json

    from wattflow.files.data_folder import packaged

    shipped = packaged("pages.json.bz2")
    if shipped.is_file():
        found: dict[str, str] = json.loads(bz2.decompress(shipped.read_bytes()))
        listed = [one for section in sections(found[CONTENTS]).values() for one in section]
        # Pages that the wheel leaves out keep their place in the contents, and say where they are.
        return {name: _elsewhere(title) for title, name in listed} | found
    if not (SOURCE / CONTENTS).is_file():
        raise WattflowError("this installation has no pages; a wheel of wattflow brings them")
    return {page.name: page.read_text(encoding="utf-8") for page in sorted(SOURCE.glob("*.md"))}


def _elsewhere(title: str) -> str:
    """Write a page in place of one that the package leaves out."""
    return (
        f"# {title}\n\nThis page lies beside the source (`docs/`, `make docs`); the installed package leaves it out. "
        "Every command says its options with `--help`.\n"
    )


def sections(contents: str) -> dict[str, list[tuple[str, str]]]:
    """Return titles and files by section, in the order of the page of contents."""
    found: dict[str, list[tuple[str, str]]] = {}
    # The first piece stands before the first heading.
    for part in re.split(r"^## ", contents, flags=re.M)[1:]:
        title, _, body = part.partition("\n")
        found[title.strip()] = re.findall(r"^- \[([^\]]+)\]\(([\w.-]+\.md)\)", body, re.M)
    return found


def write(folder: Path) -> int:
    """Render every page into a folder; returns how many."""
    every = pages()
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in every.items():
        target = folder / Path(name).with_suffix(".html").name
        target.write_text(render(name, text, every[CONTENTS]), encoding="utf-8")
    return len(every)


def render(name: str, text: str, contents: str) -> str:
    """Render one page as HTML, with the way to all others."""
    import html

    from markdown_it import MarkdownIt

    # Objects first, since their docstrings may hold links and pictures.
    text = _OBJECT.sub(lambda match: _described(match[1]), text)
    text = _PICTURE.sub(r"*(picture: \1; the site of `make docs` has it)*", text)
    text = _LINK.sub(lambda match: f"]({match[1]}.html{match[2] or ''})", text)
    # Raw HTML is let through: these are our own pages.
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    title = next(iter(re.findall(r"^# (.+)$", text, re.M)), name)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>{_navigation(name, contents)}"
        f"<main>{_anchored(body)}</main></html>\n"
    )


def _navigation(here: str, contents: str) -> str:
    import html

    lines = ['<nav><a href="index.html"><b>wattflow</b></a>']
    for title, listed in sections(contents).items():
        lines.append(f"<h4>{html.escape(title)}</h4>")
        for shown, page in listed:
            mark = ' class="here"' if page == here else ""
            lines.append(f'<a href="{Path(page).stem}.html"{mark}>{html.escape(shown)}</a>')
    return "".join([*lines, "</nav>"])


def anchor(heading: str) -> str:
    """Return the id of a heading, as links to it spell it."""
    # The rule by which links within these pages are written.
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _anchored(body: str) -> str:
    import html

    def named(match: re.Match[str]) -> str:
        plain = html.unescape(re.sub(r"<[^>]+>", "", match[2]))
        return f'<h{match[1]} id="{anchor(plain)}">{match[2]}</h{match[1]}>'

    return re.sub(r"<h([1-6])>(.*?)</h\1>", named, body)


def _described(name: str) -> str:
    """Describe a public name from its own docstring, as Markdown."""
    module, _, attribute = name.rpartition(".")
    try:
        value = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, WattflowError) as error:
        return f"### `{name}`\n\n{error}\n"
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = ""
    parts = [f"### `{name}`", f"```python\n{attribute}{signature}\n```", _indented(inspect.getdoc(value) or "")]
    members = vars(value).items() if inspect.isclass(value) else ()
    for one, method in members:
        # Only what is documented: the page is the public interface.
        if inspect.isfunction(method) and not one.startswith("_") and method.__doc__:
            parts.append(f"- `{one}{inspect.signature(method)}`: {' '.join(method.__doc__.split())}")
    return "\n\n".join(parts) + "\n"


def _indented(text: str) -> str:
    """Turn a docstring's indented parts, which would be code in Markdown, into lists."""
    return re.sub(r"^    +(\S)", r"- \1", text, flags=re.M).replace(":\n- ", ":\n\n- ")


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

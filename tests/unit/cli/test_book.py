"""The pages: listed, linked, rendered without a network, and naming only commands and options that exist."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from wattflow.cli import book
from wattflow.cli.main import app
from wattflow.traces import registry

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs").glob("*.md"))
HISTORY = ("changelog.md",)
"""Says what commands were called then."""
MOST_WORDS = 79_000
SPOKEN = re.compile(r"wattflow(?: +(?!wattflow )[^\s`|;&]+)+")


def texts() -> Iterator[tuple[str, str]]:
    for path in (*PAGES, ROOT / "README.md"):
        if path.name not in HISTORY:
            yield path.name, path.read_text(encoding="utf-8")


def test_every_page_is_listed_once_and_the_sections_are_those_of_a_book() -> None:
    listed = book.sections((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    assert list(listed) == [
        "Start", "Guides", "Concepts", "Reference", "Operations", "Where do I change X", "Research notes",
    ]  # fmt: skip
    names = [page for pages in listed.values() for _, page in pages]
    assert sorted(names) == sorted({path.name for path in PAGES} - {"index.md"})


def test_pages_that_stand_at_the_root_are_links_and_not_copies() -> None:
    """An editor that writes a link anew (sed -i) leaves a copy behind, which grows old."""
    for name in ("changelog.md", "contributing.md"):
        assert (ROOT / "docs" / name).readlink() == Path("..", f"{Path(name).stem.upper()}.md")


def test_a_guide_begins_with_what_its_reader_gets_and_the_command() -> None:
    listed = book.sections((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    for _, page in (*listed["Start"], *listed["Guides"]):
        head = (ROOT / "docs" / page).read_text(encoding="utf-8").split("\n## ")[0]
        words, _, code = head.partition("```")
        assert 8 <= len(words.split()) <= 90, f"{page}: a sentence or three, then the command"
        assert re.search(r"^(\$ )?(wattflow|pip) ", code.partition("```")[0], re.M), f"{page}: no command at its top"
    for _, page in listed["Reference"]:
        head = (ROOT / "docs" / page).read_text(encoding="utf-8").split("\n## ")[0]
        usable = re.search(r"^```\w+\n((\w+=\w+ )?wattflow|from|import) ", head, re.M)
        assert page == "changelog.md" or usable, f"{page}: nothing to type at its top"


def test_every_format_has_its_line() -> None:
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z0-9-]+)`", " ".join(re.findall(r"^\| (`[^|]*`) \|", page, re.M))))
    assert {one.name for one in registry.formats()} <= named


def test_the_book_does_not_grow() -> None:
    """Words of all pages but the changelog, which is history, and what is made from code: less is more."""
    made = (*HISTORY, "commands.md", "contributing.md")
    counts = {path.name: len(path.read_text(encoding="utf-8").split()) for path in PAGES if path.name not in made}
    assert sum(counts.values()) <= MOST_WORDS, counts
    assert counts["learned.md"] <= 900


def test_every_link_of_a_rendered_page_leads_somewhere(tmp_path: Path) -> None:
    count = book.write(tmp_path)
    assert count == len(PAGES)
    rendered = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    anchors = {name: set(re.findall(r'id="([^"]+)"', text)) for name, text in rendered.items()}
    dead = []
    for name, text in rendered.items():
        for target in re.findall(r'href="(?!https?:)([^"]+)"', text):
            page, _, anchor = target.partition("#")
            page = page or name
            there = page in rendered or (ROOT / "docs" / page).exists()
            if not there or (anchor and anchor not in anchors.get(page, set())):
                dead.append(f"{name}: {target}")
    assert not dead


def test_public_names_are_described_from_their_docstrings(tmp_path: Path) -> None:
    book.write(tmp_path)
    page = (tmp_path / "api.html").read_text(encoding="utf-8")
    for name in ("simulate", "compare", "Recipe", "Policy", "Client"):
        assert re.search(rf"<h3 id=\"[^\"]+\"><code>wattflow\.[\w.]+\.{name}</code></h3>", page), name
    assert ":::" not in page and "could not" not in page


def commands() -> dict[str, Any]:
    """Every command by its words, hidden spellings of 0.1 too."""
    found: dict[str, Any] = {}

    def below(words: tuple[str, ...], command: Any) -> None:
        found[" ".join(words)] = command
        for name, one in getattr(command, "commands", {}).items():
            below((*words, name), one)

    below(("wattflow",), typer.main.get_command(app))
    return found


def spoken(text: str) -> Iterator[list[str]]:
    """Words of every command that a page writes as code."""
    code = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.M | re.S)
    inline = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    for part in (*(line for block in code for line in block.splitlines()), *(" ".join(one.split()) for one in inline)):
        line = re.sub(r"\s#.*$", "", part).replace("kubectl wattflow ", "wattflow kube ")
        for call in SPOKEN.findall(line):
            try:
                words = shlex.split(call)
            except ValueError:
                words = call.split()
            yield words


def wrong(words: list[str], known: dict[str, Any]) -> str | None:
    """Say what of a command does not exist."""
    depth = 1
    while " ".join(words[: depth + 1]) in known and depth < len(words):
        depth += 1
    command = known[" ".join(words[:depth])]
    rest = words[depth:]
    if hasattr(command, "commands"):
        # a group alone, or prose such as "wattflow and …" in code: what looks like a command must be one
        return f"no command {rest[0]!r}" if rest and re.fullmatch(r"[a-z]+", rest[0]) and depth > 1 else None
    options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    for word in rest:
        name = word.split("=")[0].rstrip(",.…)]")
        if name.startswith("[--"):
            name = name[1:]
        if re.fullmatch(r"--[a-z][a-z-]+", name) and name not in options:
            return f"no option {name}"
    return None


def test_pages_name_only_commands_and_options_that_exist() -> None:
    known = commands()
    heads = {words.split()[1] for words in known if len(words.split()) == 2}
    faults, seen = [], 0
    for page, text in texts():
        for words in spoken(text):
            if len(words) < 2 or words[1] not in heads:
                continue
            seen += 1
            fault = wrong(words, known)
            if fault:
                faults.append(f"{page}: {' '.join(words)}: {fault}")
    assert seen > 150 and not faults, "\n".join(faults)


def test_a_command_that_does_not_exist_would_be_noticed() -> None:
    known = commands()
    assert wrong(["wattflow", "up", "--nonsense"], known) == "no option --nonsense"
    assert wrong(["wattflow", "machine", "metres"], known) == "no command 'metres'"
    assert wrong(["wattflow", "compare", "x", "-p", "heft", "--seeds", "3"], known) is None


@pytest.mark.parametrize("word", ["flagship", "portfolio", "bound"])
def test_the_glossary_has_our_own_words(word: str) -> None:
    assert f"| **{word}** |" in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def test_the_learned_policy_is_one_page() -> None:
    assert len((ROOT / "docs" / "learned.md").read_text(encoding="utf-8").split()) <= 900


def test_a_start_begins_with_a_command() -> None:
    listed = book.sections((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    for _, page in listed["Start"]:
        lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
        assert any(line.startswith("```") for line in lines[:14]), page


def test_docs_lists_prints_and_writes(tmp_path: Path) -> None:
    run = CliRunner()
    assert "tutorial" in run.invoke(app, ["docs", "--list"]).stdout
    assert run.invoke(app, ["docs", "glossary", "--text"]).stdout.startswith("# Glossary")
    done = run.invoke(app, ["docs", "--out", str(tmp_path / "pages")])
    assert done.exit_code == 0 and (tmp_path / "pages" / "index.html").is_file()
    assert run.invoke(app, ["docs", "--out", str(tmp_path / "pages")]).exit_code == 2
    assert "did you mean 'glossary'" in run.invoke(app, ["docs", "glosary"]).output


def test_files_that_pages_name_are_there() -> None:
    """A module that moved leaves its old name behind on pages that nobody runs."""
    places = (ROOT, ROOT / "src" / "wattflow", ROOT / "tools" / "kube-rig")
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {Path(line).name for line in tracked.splitlines()}
    gone = [
        f"{page.name}: {name}"
        for page in PAGES
        if page.name not in HISTORY
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", page.read_text(encoding="utf-8"))
        if not (any((place / name).exists() for place in places) if "/" in name else name in names)
    ]
    assert gone == []

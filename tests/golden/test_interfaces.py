"""What other people's code builds on is still there, unless its major version says otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from golden import interfaces
from wattflow.model.interfaces import VERSIONS

ROOT = Path(__file__).parents[2]


def test_nothing_is_gone_while_its_major_version_stands() -> None:
    pytest.importorskip("fastapi")
    before, known = interfaces.recorded()
    same = {name for name, version in VERSIONS.items() if version.split(".")[0] == before[name].split(".")[0]}
    present = set(interfaces.lines())
    # A parameter that need not be given any more harms nobody; a new one that must be does.
    gone = [line for line in known if line.split(" ")[0] in same and not {line, _eased(line)} & present]
    gone += [
        line
        for line in sorted(present - set(known))
        if line.endswith(interfaces.NEEDED) and f"{line.split('(')[0]}()" in known and line.split(" ")[0] in same
    ]
    assert not gone, (
        "removed or changed; keep the old form for a release, or raise the major version in "
        "wattflow/model/interfaces.py and run `make interfaces`:\n" + "\n".join(gone)
    )


def _eased(line: str) -> str:
    return line.removesuffix(interfaces.NEEDED)


def test_versions_only_rise() -> None:
    before, _ = interfaces.recorded()
    for name, version in before.items():
        assert tuple(map(int, VERSIONS[name].split("."))) >= tuple(map(int, version.split(".")))


def test_the_rule_names_every_interface() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == set(VERSIONS)


def test_agents_and_messages_have_one_number() -> None:
    from wattflow.runtime.messages import PROTOCOL

    assert VERSIONS["messages"].split(".")[0] == str(PROTOCOL)

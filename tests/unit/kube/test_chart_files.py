"""The chart's files are those of deploy/, by links: a copy would go its own way, a link kept as text is no manifest."""

from __future__ import annotations

import re
from pathlib import Path

DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / "helm" / "wattflow"


def test_every_file_of_the_chart_is_a_link_into_deploy() -> None:
    files = list((CHART / "files").iterdir())
    assert [one.name for one in files if not (one.is_symlink() and one.resolve().is_relative_to(DEPLOY))] == []
    assert [one.name for one in files if "kind:" not in one.read_text() and one.suffix == ".yaml"] == []


def test_every_file_that_the_templates_name_is_there() -> None:
    named = {
        name for one in (CHART / "templates").iterdir() for name in re.findall(r'"files/([\w.-]+)"', one.read_text())
    }
    assert named and named <= {one.name for one in (CHART / "files").iterdir()}

"""Lines of changelog.d/ are gathered under the present version, however often."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("gather_changelog", ROOT / "tools" / "gather_changelog.py")
assert _spec is not None and _spec.loader is not None
tool = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tool)

OLD = "# Changelog\n\n## 0.1.0\n\n- First.\n"


def test_what_comes_later_is_added_to_the_same_version() -> None:
    once = tool.gathered("0.2.0", OLD, ["- One\n  line.\n", "Two.\n"])
    assert once == "# Changelog\n\n## 0.2.0\n\n- One line.\n- Two.\n\n## 0.1.0\n\n- First.\n"
    again = tool.gathered("0.2.0", once, ["- Three.\n"])
    assert again == once.replace("- Two.\n", "- Two.\n- Three.\n")


def test_groups_made_by_hand_stay_and_later_lines_have_one_of_their_own() -> None:
    grouped = OLD.replace("## 0.1.0", "## 0.2.0\n\n### Policies\n- New.\n\n## 0.1.0")
    once = tool.gathered("0.2.0", grouped, ["- Late.\n"])
    again = tool.gathered("0.2.0", once, ["- Later.\n"])
    assert again == grouped.replace("- New.\n", "- New.\n\n### Also\n- Late.\n- Later.\n")

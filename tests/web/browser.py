"""One scenario of web/tests in a real browser."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from .node import WEB, need_browser, need_node


def browse(address: str, scenario: str, **given: object) -> Any:
    """Run the scenario; nothing may have gone wrong on the page, and nothing may have been asked of another host."""
    command = [need_node(), str(WEB / "tests" / "drive.mjs"), need_browser(), address, scenario, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    assert seen["errors"] == [] and seen["foreign"] == [], seen
    return seen["result"]

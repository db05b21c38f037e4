"""Versions of what other people's code builds on; CONTRIBUTING.md has the rule for changes.

What is added raises the minor number; what is removed, renamed or means something else raises the major one.
"""

from __future__ import annotations

from collections.abc import Mapping

VERSIONS: Mapping[str, str] = {
    "policy": "2.0",
    "view": "1.0",
    "engine": "1.0",
    "driver": "1.0",
    "messages": "2.0",
    "http": "1.0",
}

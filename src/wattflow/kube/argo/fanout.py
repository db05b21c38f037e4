"""How many times a step runs: ``withItems``, ``withSequence``, ``withParam``, as far as the spec alone can tell."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import cast

Raw = Mapping[str, object]
_REFERENCE = re.compile(r"\{\{\s*workflow\.parameters\.([\w.-]+)\s*\}\}")
_MOST = 20_000
"""More copies than this are left to a placeholder."""


def parameters(spec: Raw) -> dict[str, str]:
    """Read the values of the workflow's own parameters."""
    arguments = spec.get("arguments")
    listed = arguments.get("parameters") if isinstance(arguments, dict) else None
    found = {}
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and "name" in entry and "value" in entry:
            value = entry["value"]
            # Kept as JSON where it is no text: `withParam` reads it as JSON again.
            found[str(entry["name"])] = value if isinstance(value, str) else json.dumps(value)
    return found


def items(step: Raw, known: Mapping[str, str]) -> list[str] | None:
    """List the texts of a step's copies: empty for a single run without fan-out, None where nobody knows yet.

    A text is what Argo writes into the node's name after the index.
    """
    if isinstance(step.get("withItems"), list):
        return _few([item_text(_filled(item, known)) for item in cast(list[object], step["withItems"])])
    if step.get("withSequence") is not None:
        return _sequence(step["withSequence"], known)
    if step.get("withParam") is not None:
        try:
            listed = json.loads(_text(step["withParam"], known))
        except ValueError:
            # Not a list yet: an expression over another task's output, which only that task will tell.
            return None
        return _few([item_text(item) for item in listed]) if isinstance(listed, list) else None
    return []


def fans_out(step: Raw) -> bool:
    """Tell whether the step asks for copies at all."""
    return any(step.get(key) is not None for key in ("withItems", "withSequence", "withParam"))


def item_text(item: object) -> str:
    """Spell an item as Argo does in the name of a node."""
    if isinstance(item, dict):
        # Argo prints a map item as sorted "key:value" pairs.
        return ",".join(sorted(f"{key}:{_plain(value)}" for key, value in item.items()))
    return _plain(item)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        # JSON's words, not Python's "True".
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _filled(item: object, known: Mapping[str, str]) -> object:
    return _text(item, known) if isinstance(item, str) else item


def _text(raw: object, known: Mapping[str, str]) -> str:
    text = raw if isinstance(raw, str) else json.dumps(raw)
    return _REFERENCE.sub(lambda found: known.get(found[1], found[0]), text)


def _few(texts: list[str]) -> list[str] | None:
    return texts if len(texts) <= _MOST else None


def _sequence(raw: object, known: Mapping[str, str]) -> list[str] | None:
    if not isinstance(raw, dict):
        return None
    try:
        start = int(_text(raw.get("start", "0"), known))
        if raw.get("count") is not None:
            numbers = range(start, start + int(_text(raw["count"], known)))
        else:
            end = int(_text(raw["end"], known))
            # `end` is included, and may lie below `start`.
            numbers = range(start, end + 1) if start <= end else range(start, end - 1, -1)
    except (ValueError, KeyError):
        return None
    if abs(numbers.stop - numbers.start) > _MOST:  # before any is made: a tenant may ask for 10^18
        return None
    return [str(number) for number in numbers]

"""Text that comes from tasks and other machines, made fit to be stored, sent and shown; one place for all of it."""

from __future__ import annotations

import re

LONGEST = 4000
"""Characters of a reason that are kept: an exception's text may be megabytes."""
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str, most: int = LONGEST) -> str:
    """Escape what UTF-8, a database or a terminal would stumble over: lone surrogates (a file name's bytes), NUL,
    escape codes, marks that turn the direction of writing. Line ends and tabs stay; the rest beyond ``most`` goes."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return _UNPRINTABLE.sub(_escaped, cut)


def storable(value: object) -> object:
    """A column's value without what no database takes: NUL (PostgreSQL) and lone surrogates (all)."""
    if isinstance(value, str) and not value.isprintable():
        return plain(value, len(value))
    return value


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")

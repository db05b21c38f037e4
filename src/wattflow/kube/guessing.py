"""A guessed power curve for nodes that nobody measured or described: by CPU model where labels tell it, else by kind.

Models are told by node-feature-discovery's labels (vendor, family and model number), or by the label
``wattflow.io/cpu-model`` in words (``AMD-EPYC-7763``). The curves are those of whole machines in our table, scaled to
the node's threads: right in kind, not in size, so their provenance is *guessed*.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import statistics

from wattflow.clusters import profiles
from wattflow.kube import objects
from wattflow.kube.tenant import PREFIX
from wattflow.model.profile import PowerProfile, Provenance

MODEL = f"{PREFIX}cpu-model"
_NFD = "feature.node.kubernetes.io/cpu-model."
_BY_NUMBER = {
    ("Intel", 6, 94): "ccf:xeon-e3-1260l-tx1320",
    ("Intel", 6, 158): "ccf:xeon-e2176g-rx1330",
    ("Intel", 6, 167): "ccf:xeon-e2388g-rx1330",
    ("Intel", 6, 106): "ccf:xeon-8380-rx2530",
    ("Intel", 6, 143): "ccf:xeon-8480-rx2540",
    ("AMD", 23, 49): "ccf:epyc-7742-sr655",
    ("AMD", 25, 1): "ccf:epyc-7763-dl325",
    ("AMD", 25, 17): "ccf:epyc-9654p-dl325",
    ("AMD", 25, 160): "ccf:epyc-9754-dl325",
}
"""Machines of our table by the family and model number of their processors."""


def guess(node: objects.Node, threads: int) -> PowerProfile:
    """Return a curve for any node."""
    name = _by_number(node) or _by_words(node.metadata.labels.get(MODEL, ""))
    if name is not None:
        return _guessed(profiles.resolve_profile(name, threads), f"by its CPU model: {name}")
    kind = node.status.node_info.architecture or "amd64"
    idle, full = _usual(kind)
    return PowerProfile(
        (0.0, float(threads)),
        (idle * threads, full * threads),
        provenance=Provenance.GUESSED,
        source=f"guessed: the median machine of kind {kind} in our table",
    )


def _guessed(curve: PowerProfile, how: str) -> PowerProfile:
    return dataclasses.replace(curve, provenance=Provenance.GUESSED, source=f"guessed {how}")


def _by_number(node: objects.Node) -> str | None:
    labels = node.metadata.labels
    try:
        numbers = int(labels.get(f"{_NFD}family", "")), int(labels.get(f"{_NFD}id", ""))
    except ValueError:
        return None
    return _BY_NUMBER.get((labels.get(f"{_NFD}vendor_id", ""), *numbers))


def _by_words(model: str) -> str | None:
    """Return the machine of our table whose processor has the same number in its name, such as 7763 or 8480+."""
    # The first word with three digits in a row is the processor's number; "v4", "2.3GHz" and the like
    # are not.
    number = next((word for word in re.split(r"[^0-9A-Za-z]+", model) if re.search(r"[0-9]{3}", word)), None)
    if number is None:
        return None
    # A whole word: 776 must not find 7763, nor 7763 find 7763P.
    wanted = re.compile(rf"(?<![0-9A-Za-z]){re.escape(number)}(?![0-9A-Za-z])", re.IGNORECASE)
    return next((one.name for one in _machines() if wanted.search(one.about)), None)


def _machines() -> list[profiles.NamedProfile]:
    return [one for one in profiles.list_profiles() if one.name.startswith("ccf:")]


@functools.cache
def _usual(kind: str) -> tuple[float, float]:
    """Return median watts a thread, idle and full, of the machines of an architecture."""
    arm = kind.startswith(("arm", "aarch"))
    # Our table has two kinds: Ampere machines stand for arm64, all others for amd64.
    chosen = [one for one in _machines() if ("Ampere" in one.about) == arm]
    each = [(one.watts[0] / one.threads, one.watts[-1] / one.threads) for one in chosen if one.threads]
    return statistics.median(idle for idle, _ in each), statistics.median(full for _, full in each)

"""Watts of nodes: which profile a node has, what it draws as requested, and what a cap leaves of it.

A node's profile comes from a NodePowerProfile object that names it or selects its labels, else from the label
``wattflow.io/power-profile`` (a name of `wattflow profiles`, its ``:`` and ``/`` written as dots, which labels can
hold), else from the configured default, else it is guessed where that is allowed; else it is unknown, which is not
zero.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import logging
import math
import re
import statistics
from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from wattflow.clusters import profiles
from wattflow.kube import accounting, objects
from wattflow.kube.filters import selectors, snapshot
from wattflow.kube.reflect import DELETED
from wattflow.kube.tenant import PREFIX
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.model.profile import PowerProfile, Provenance, Scope

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


log = logging.getLogger(__name__)
LABEL = f"{PREFIX}power-profile"
SPEED = f"{PREFIX}speed"
"""Label: runtimes on the node are divided by this; 1 by default."""
GROUP = "/apis/wattflow.io/v1alpha1/nodepowerprofiles"


class NodePowerSpec(objects.Object):
    """A curve for some nodes: points, or the name of a known profile."""

    nodes: list[str] = msgspec.field(default_factory=list)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    busy: list[float] = msgspec.field(default_factory=list)
    watts: list[float] = msgspec.field(default_factory=list)
    preset: str = ""
    scope: str = "wall"
    provenance: str = "modelled"
    source: str = ""
    cap_w: float | None = msgspec.field(default=None, name="capW")


class NodePowerProfile(objects.ClusterWide):
    """The custom resource ``nodepowerprofiles.wattflow.io``."""

    spec: NodePowerSpec = msgspec.field(default_factory=NodePowerSpec)

    def applies(self, node: objects.Node) -> bool:
        """Match a node by name, or by all labels of its selector."""
        # A profile without selector and without names is for nobody, not for all nodes.
        if self.spec.nodes or not self.spec.node_selector:
            return node.metadata.name in self.spec.nodes
        return selectors.matches(objects.LabelSelector(match_labels=self.spec.node_selector), node.metadata.labels)

    def profile(self, threads: int) -> PowerProfile:
        """Return the curve. Raises InvalidInput where the object does not make one."""
        spec = self.spec
        if spec.preset:
            return profiles.resolve_profile(spec.preset, threads)
        try:
            about = (Scope(spec.scope), Provenance(spec.provenance), spec.source or f"NodePowerProfile {self.key}")
            return PowerProfile(tuple(spec.busy), tuple(spec.watts), *about)
        except ValueError as error:
            raise InvalidInput(f"NodePowerProfile {self.key}", str(error)) from None


@functools.cache
def _by_label() -> dict[str, str]:
    return {name_as_label(one.name): one.name for one in profiles.list_profiles()}


def name_as_label(name: str) -> str:
    """Spell a profile's name in letters that a label's value may have."""
    return name.replace(":", ".").replace("/", ".")


@functools.lru_cache(maxsize=1024)
def _labelled(value: str, threads: int) -> PowerProfile:
    known = _by_label()
    if value not in known:
        near = difflib.get_close_matches(value, known, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        hint = f"{meant}`wattflow profiles` lists them (: and / are written as dots)"
        raise InvalidInput(f"label {LABEL}", f"no power profile named {value!r}; {hint}")
    return profiles.resolve_profile(known[value], threads)


def threads_of(node: objects.Node) -> int:
    """Return the hardware threads: the node's CPU capacity."""
    # Capacity, not allocatable: curves are over all threads of the machine, also those kept for the
    # system.
    stated = accounting.amounts(node.status.capacity or node.status.allocatable)
    return max(1, math.ceil(accounting.cores(stated, 1000)))


def speed_of(node: objects.Node) -> float:
    """Return the node's speed by its label; a value that is no positive number counts as 1, with a warning."""
    text = node.metadata.labels.get(SPEED)
    if text is None:
        return 1.0
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not (math.isfinite(speed) and speed > 0):
        log.warning("node %s: label %s must be a positive number, not %r", node.metadata.name, SPEED, text)
        return 1.0
    return speed


@dataclass(slots=True)
class Watts:
    """The power side of the scheduler.

    Attributes:
        node_cap_w: Watts that no node may exceed by requests; None for no cap.
        joules: Modelled energy since the start, by node.
        guesses: Whether nodes without any source get a guessed curve.
        asleep_w: Watts of nodes that sleep by our order.
    """

    default: str = ""
    node_cap_w: float | None = None
    known: dict[str, NodePowerProfile] = field(default_factory=dict)
    joules: dict[str, float] = field(default_factory=dict)
    _profiles: dict[str, PowerProfile | None] = field(default_factory=dict)
    asleep_w: dict[str, float] = field(default_factory=dict)
    guesses: bool = False
    _drawn: dict[str, tuple[PowerProfile, int, float]] = field(default_factory=dict)
    _caps: dict[str, float] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def on_profile(self, kind: str, one: NodePowerProfile) -> None:
        """Take up a NodePowerProfile that came, changed or went."""
        if kind == DELETED:
            self.known.pop(one.key, None)
        else:
            self.known[one.key] = one

    def profile_of(self, node: objects.Node) -> PowerProfile | None:
        """Return the node's curve, None where unknown; a mistake is told once and counts as unknown."""
        name = node.metadata.name
        try:
            found = self._find(node, threads_of(node))
        except WattflowError as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                log.warning("node %s: %s", name, error)
            found = None
        self._profiles[name] = found
        return found

    def _find(self, node: objects.Node, threads: int) -> PowerProfile | None:
        fits = sorted((one for one in self.known.values() if one.applies(node)), key=_most_special)
        # Also of a node that has lost its profile: an old cap must not stay.
        self._caps.pop(node.metadata.name, None)
        if self.node_cap_w is not None:
            self._caps[node.metadata.name] = self.node_cap_w
        if fits:
            if fits[0].spec.cap_w is not None:
                # The profile's cap replaces the configured one, higher or lower: it is about these nodes.
                self._caps[node.metadata.name] = fits[0].spec.cap_w
            return fits[0].profile(threads)
        label = node.metadata.labels.get(LABEL)
        if label:
            return _labelled(label, threads)
        if self.default:
            return profiles.resolve_profile(self.default, threads)
        return guess(node, threads) if self.guesses else None

    def node_w(self, view: snapshot.NodeView, more_m: int = 0) -> float | None:
        """Model the watts of a node with its requested cores busy, and ``more_m`` milli-cores beside."""
        profile = self._profiles.get(view.node.metadata.name)
        if profile is None:
            return None
        return profile.at((view.requested.get(accounting.CPU, 0) + more_m) / 1000)

    def _drawn_w(self, name: str, view: snapshot.NodeView) -> float | None:
        """Return `node_w` from a cache; the curve is read anew only where requests changed."""
        profile, cpu = self._profiles.get(name), view.requested.get(accounting.CPU, 0)
        if profile is None:
            return None
        if name in self.asleep_w:
            return self.asleep_w[name]
        known = self._drawn.get(name)
        # By identity: curves are replaced, never changed.
        if known is None or known[1] != cpu or known[0] is not profile:
            known = self._drawn[name] = (profile, cpu, profile.at(cpu / 1000))
        return known[2]

    def added_w(self, view: snapshot.NodeView, more_m: int) -> float | None:
        """Tell what a pod with so many milli-cores adds."""
        before, after = self.node_w(view), self.node_w(view, more_m)
        return None if before is None or after is None else after - before

    def cluster_w(self, cluster: snapshot.Snapshot) -> float:
        """Sum the modelled watts of all nodes whose profile is known."""
        # `fsum`: the order of nodes must not change the cap's verdict by a rounding.
        return math.fsum(self._drawn_w(name, view) or 0.0 for name, view in cluster.nodes.items())

    def integrate(self, cluster: snapshot.Snapshot, seconds: float) -> None:
        """Add the modelled joules of the time since the last call."""
        for name, view in cluster.nodes.items():
            watts = self._drawn_w(name, view)
            if watts is not None:
                self.joules[name] = self.joules.get(name, 0.0) + watts * seconds

    def most_w(self, name: str) -> float | None:
        """Tell what a node may draw at most: its curve's end, or its cap; None where its curve is unknown."""
        profile = self._profiles.get(name)
        return None if profile is None else min(profile.full_w, self._caps.get(name, math.inf))

    def capped_nodes(self) -> Collection[str]:
        """Return the nodes that have a cap."""
        return self._caps.keys()

    def capped(self, name: str, allocatable: accounting.Amounts) -> accounting.Amounts:
        """Tell what a node's cap leaves of its cores: as many as keep its curve below the cap."""
        profile, cap_w = self._profiles.get(name), self._caps.get(name)
        if profile is None or cap_w is None:
            return allocatable
        cpu = allocatable.get(accounting.CPU, 0)
        return {**allocatable, accounting.CPU: min(cpu, cores_below_m(profile, cap_w))}


def cores_below_m(profile: PowerProfile, cap_w: float) -> int:
    """Return the most milli-cores that stay at or below the cap; 0 where even idling is above."""
    if profile.full_w <= cap_w:
        # No cap in effect: more cores than any node has, and exact as a float.
        return 2**53
    if profile.idle_w > cap_w:
        return 0
    low, high = 0.0, profile.busy[-1]
    # 60 halvings are below a double's precision, whatever the curve's span.
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if profile.at(middle) <= cap_w else (low, middle)
    # A trifle more before cutting: 2000 milli-cores must not become 1999.
    return int(low * 1000 + 1e-6)


def _most_special(one: NodePowerProfile) -> tuple[bool, int, str]:
    """Order profiles: named nodes before selectors, more labels before fewer, then by name."""
    # The name last, so that two equal selectors always have the same winner.
    return not one.spec.nodes, -len(one.spec.node_selector), one.key

"""A cluster: nodes, their devices, power, network, sleep states, and the zones they stand in.

Everything here is a frozen fact. `wattflow.clusters` reads it from TOML and holds the presets.

Levels of a device as facts: which clocks or caps it has, and what each costs a function in seconds and joules.

All numbers are relative to the first level, which is the device as it runs by itself. What is known of a function is a
row of its own; for the others a compute-bound share says how much of their time follows the clock. Where neither is
known, a level's cost is None, and such a function runs at full clock.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from wattflow.model.profile import DeviceProfile, PowerProfile, Provenance

KNOBS = ("clock_mhz", "cap_w")


@dataclass(frozen=True, slots=True)
class FunctionLevels:
    """Seconds and joules of one function at each level, relative to the first."""

    function: str
    seconds: tuple[float, ...]
    joules: tuple[float, ...]
    provenance: Provenance = Provenance.MEASURED

    def __post_init__(self) -> None:
        for name in ("seconds", "joules"):
            values = getattr(self, name)
            if not values or not all(math.isfinite(value) and value > 0 for value in values):
                raise ValueError(f"{name} of {self.function} must be numbers above 0")
            # Noise of a measurement may make a lower level look a little quicker; more than that is a slip.
            if name == "seconds" and min(values) < 0.9:
                raise ValueError(f"seconds of {self.function}: a lower level makes nothing quicker; at least 0.9")
            # Exactly 1, not nearly: level 0 costs nothing more, wherever it is asked for.
            if values[0] != 1:
                raise ValueError(f"{name} of {self.function} are relative to the first level: the first must be 1")


@dataclass(frozen=True, slots=True)
class DeviceLevels:
    """The levels of a device.

    Attributes:
        knob: ``clock_mhz`` (a ceiling of the clock) or ``cap_w`` (a power limit).
        values: Of each level, falling; the first is full.
        functions: What is known, one for each function.
        compute_share: Of all other functions: the part of their time that follows the clock, 0 to 1.
    """

    knob: str
    values: tuple[float, ...]
    functions: tuple[FunctionLevels, ...] = ()
    compute_share: float | None = None

    def __post_init__(self) -> None:
        if self.knob not in KNOBS:
            raise ValueError(f"knob must be one of {', '.join(KNOBS)}, not {self.knob!r}")
        if len(self.values) < 2 or not all(math.isfinite(value) and value > 0 for value in self.values):
            raise ValueError("values must be at least two levels above 0, the first of them full")
        # The order is part of the meaning: level 0 is full, a higher number is slower.
        if any(after >= before for before, after in itertools.pairwise(self.values)):
            raise ValueError("values must fall from level to level")
        if self.compute_share is not None and not 0 <= self.compute_share <= 1:
            raise ValueError(f"compute_share must be 0 to 1, not {self.compute_share}")
        # A power cap does not say which clock results.
        if self.compute_share is not None and self.knob != "clock_mhz":
            raise ValueError("compute_share says what a clock does; with cap_w give functions their own rows")
        for row in self.functions:
            if len(row.seconds) != len(self.values) or len(row.joules) != len(self.values):
                raise ValueError(f"{row.function} needs seconds and joules at each of the {len(self.values)} levels")
        names = [row.function for row in self.functions]
        if len(set(names)) < len(names):
            raise ValueError(f"functions must differ: {', '.join(names)}")

    def cost(self, function: str, level: int, idle_share: float = 0.0) -> tuple[float, float] | None:
        """Return a function's seconds and joules at a level, relative to full; None where nobody knows.

        Args:
            idle_share: Idle watts of the device as a part of its full ones: joules that pass with time alone.
        """
        if level == 0:
            return 1.0, 1.0
        for row in self.functions:
            if row.function == function:
                return row.seconds[level], row.joules[level]
        if self.compute_share is None:
            return None
        clock = self.values[level] / self.values[0]
        seconds = 1 - self.compute_share + self.compute_share / clock
        # Half of the work's joules rise with the cube of the clock, as `levels.response` begins with.
        return seconds, idle_share * seconds + (1 - idle_share) * (1 + clock**3) / 2


CPU_SHARING = ("fair", "pinned")
SHARING = ("exclusive", "time-slice", "mps", "mig")
"""How tasks may share a device."""


_ENDLESS = ("bandwidth_bytes_per_s", "after_s", "burst", "time_limit_s", "mtbf_s", "keep_alive_s")
"""Amounts that may be infinite."""


def _require(what: str, value: float, low: float = 0.0, *, above: bool = False) -> None:
    """Raise unless ``low`` ≤ value (or < where ``above``) and it is finite or may be endless. NaN never passes."""
    # Written so that NaN fails: every comparison with it is false.
    if not (value > low if above else value >= low):
        raise ValueError(f"{what} must be {'more than' if above else 'at least'} {low:g}, not {value}")
    if value == math.inf and what not in _ENDLESS:
        raise ValueError(f"{what} must be finite")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU or FPGA of a node.

    Attributes:
        sharing: ``exclusive`` (whole), ``time-slice`` (equal turns among at most ``slots`` tasks), ``mps`` (shares of
            its SMs that sum to at most 1), ``mig`` (like mps, shares rounded up to sevenths, no interference).
        interference: With k tasks on it under mps, each runs at 1 / (1 + interference · busy share of the others).
        switch_loss: Under time-slice, what changing turns adds to the time on the device, as a part of it.
        speed: Runtime of a task on it is divided by this.
        reconfigure_s: Time to load another function's kernel (FPGA).
        levels: Clocks or caps at which it can run; None: only as it runs by itself.
    """

    kind: str
    model: str = "generic"
    memory_bytes: int = 0
    sharing: str = "exclusive"
    slots: int = 1
    speed: float = 1.0
    interference: float = 0.0
    reconfigure_s: float = 0.0
    power: DeviceProfile = DeviceProfile()
    tdp_w: float | None = None
    switch_loss: float = 0.0
    levels: DeviceLevels | None = None

    def __post_init__(self) -> None:
        if self.sharing not in SHARING:
            raise ValueError(f"sharing must be one of {', '.join(SHARING)}, not {self.sharing!r}")
        _require("slots", self.slots, 1)
        _require("speed", self.speed, above=True)
        for name in ("memory_bytes", "interference", "reconfigure_s", "switch_loss"):
            _require(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Network:
    """A node's link: transfers into it share ``bandwidth_bytes_per_s`` equally."""

    bandwidth_bytes_per_s: float = 1.25e9
    latency_s: float = 0.0
    zone_latency_s: float = 0.0
    energy_j_per_byte: float = 0.0

    def __post_init__(self) -> None:
        _require("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, above=True)
        for name in ("latency_s", "zone_latency_s", "energy_j_per_byte"):
            _require(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Frequency:
    """A frequency level: speed and dynamic watts relative to the nominal level."""

    speed: float = 1.0
    power: float = 1.0

    def __post_init__(self) -> None:
        _require("speed", self.speed, above=True)
        _require("power", self.power)


@dataclass(frozen=True, slots=True)
class Sleep:
    """A sleep state. ``after_s`` puts the node to sleep by itself after idling that long (None: never)."""

    watts: float
    wake_s: float
    enter_s: float = 0.0
    wake_w: float | None = None
    after_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("watts", "wake_s", "enter_s", "wake_w", "after_s"):
            if getattr(self, name) is not None:
                _require(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Serverless:
    """A function platform seen as one elastic node.

    Attributes:
        burst: Instances available at once; then ``ramp_per_s`` more each second up to the node's cores.
        time_limit_s: An attempt is ended after this long; tasks estimated longer are not offered the node.
        price_per_core_s: Money per core second used.
        Data never stay on it: outputs go to storage, inputs come from there.
    """

    burst: float = float("inf")
    ramp_per_s: float = 0.0
    time_limit_s: float = float("inf")
    price_per_core_s: float = 0.0
    price_per_call: float = 0.0

    def __post_init__(self) -> None:
        for name in ("burst", "ramp_per_s", "price_per_core_s", "price_per_call"):
            _require(name, getattr(self, name))
        _require("time_limit_s", self.time_limit_s, above=True)


@dataclass(frozen=True, slots=True)
class Faults:
    """How a node fails: exponential times between failures and to repair; spot nodes give notice first."""

    mtbf_s: float = float("inf")
    repair_s: float = 0.0
    notice_s: float = 0.0

    def __post_init__(self) -> None:
        _require("mtbf_s", self.mtbf_s, above=True)
        _require("repair_s", self.repair_s)
        _require("notice_s", self.notice_s)


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Attributes:
        cores: Physical cores.
        threads_per_core: Hardware threads of a core.
        smt_slowdown: A thread takes this much longer when all threads of the node are busy.
        allocatable_cores: What requests may sum to; hardware threads by default.
        speed: Runtimes are divided by this; ``function_speed`` overrides it by function name.
        power: P(k), or None where nothing is known.
        sharing: ``fair``: CPU tasks progress alike; ``pinned``: each keeps its hardware thread until one falls idle.
        tdp_w: Thermal design power: the capacity of the node's energy resource in the HPE algorithm.
    """

    name: str
    cores: int
    memory_bytes: int
    threads_per_core: int = 1
    smt_slowdown: float = 1.5
    allocatable_cores: float | None = None
    speed: float = 1.0
    function_speed: Mapping[str, float] = field(default_factory=dict)
    architecture: str = "x86_64"
    features: tuple[str, ...] = ()
    zone: str = "default"
    power: PowerProfile | None = None
    tdp_w: float | None = None
    devices: tuple[Device, ...] = ()
    network: Network = Network()
    frequencies: tuple[Frequency, ...] = (Frequency(),)
    sleep: Sleep | None = None
    keep_alive_s: float = 600.0
    cold_start_factor: float = 1.0
    serverless: Serverless | None = None
    faults: Faults | None = None
    price_per_hour: float = 0.0
    embodied_kg: float = 0.0
    lifetime_years: float = 4.0
    sharing: str = "fair"

    def __post_init__(self) -> None:
        if self.sharing not in CPU_SHARING:
            raise ValueError(f"sharing of a node is {' or '.join(CPU_SHARING)}, not {self.sharing!r}")
        _require("cores", self.cores, 1)
        _require("threads_per_core", self.threads_per_core, 1)
        _require("smt_slowdown", self.smt_slowdown, 1)
        for name in ("memory_bytes", "keep_alive_s", "cold_start_factor", "price_per_hour", "embodied_kg"):
            _require(name, getattr(self, name))
        for name in ("speed", "lifetime_years"):
            _require(name, getattr(self, name), above=True)
        for name in ("allocatable_cores", "tdp_w"):
            if getattr(self, name) is not None:
                _require(name, getattr(self, name), above=True)
        for function, speed in self.function_speed.items():
            _require(f"function_speed of {function}", speed, above=True)
        if not self.frequencies:
            raise ValueError("a node needs at least one frequency level")
        # Estimates and profiles are for this level; the engine's frequency 0 is the first.
        if self.frequencies[0] != Frequency():
            raise ValueError("the first frequency level is the nominal one: its speed and power are 1")

    @property
    def class_key(self) -> tuple[object, ...]:
        """Tell what two nodes of one class share: every fact but the name. Hashable."""
        # `function_speed` is a dict, which has no hash; sorted pairs stand in.
        facts = [getattr(self, item.name) for item in fields(self) if item.name not in ("name", "function_speed")]
        return (*facts, tuple(sorted(self.function_speed.items())))

    @property
    def threads(self) -> int:
        return self.cores * self.threads_per_core

    @property
    def request_cores(self) -> float:
        """Tell what requests on this node may sum to."""
        return float(self.threads) if self.allocatable_cores is None else self.allocatable_cores


@dataclass(frozen=True, slots=True)
class Series:
    """Values at a fixed step from the run's start, repeated when the run is longer. Units by use."""

    step_s: float
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        _require("step_s", self.step_s, above=True)
        if not self.values or not all(math.isfinite(value) for value in self.values):
            raise ValueError("a series needs at least one value, all of them finite")

    def at(self, time_s: float) -> float:
        """Return the value at a time; each holds for one step, and the series repeats."""
        # Repeats from its start: a day of values serves a run of a week.
        return self.values[int(time_s // self.step_s) % len(self.values)]

    @property
    def mean(self) -> float:
        # `fsum`: a year of values added up without drift.
        return math.fsum(self.values) / len(self.values)


@dataclass(frozen=True, slots=True)
class Zone:
    """Where nodes stand: carbon intensity (g/kWh), electricity price (money/kWh) and PUE."""

    name: str = "default"
    carbon: Series = Series(3600.0, (0.0,))
    price: Series = Series(3600.0, (0.0,))
    pue: float = 1.0
    # 0 g and unknown are different things: reports leave out what is not known.
    carbon_known: bool = False
    price_known: bool = False

    def __post_init__(self) -> None:
        _require("pue", self.pue, 1)
        _require("carbon intensity", min(self.carbon.values))


@dataclass(frozen=True, slots=True, repr=False)
class Cluster:
    """Nodes and zones.

    Attributes:
        about: In a line or two what it models and what in it is assumed.
        currency: Of all its prices.
    """

    name: str
    nodes: tuple[Node, ...]
    zones: tuple[Zone, ...] = (Zone(),)
    storage: Network = Network()
    about: str = ""
    currency: str = "USD"

    def __post_init__(self) -> None:
        known = {zone.name for zone in self.zones}
        missing = sorted({node.zone for node in self.nodes} - known)
        if missing:
            raise ValueError(f"nodes stand in zones that are not described: {', '.join(missing)}")
        if not self.nodes:
            raise ValueError("a cluster needs at least one node")
        for kind, names in (("node", [node.name for node in self.nodes]), ("zone", [zone.name for zone in self.zones])):
            twice = sorted({name for name, count in Counter(names).items() if count > 1})
            if twice:
                raise ValueError(f"{kind} names must differ; more than once: {', '.join(twice[:10])}")

    def __repr__(self) -> str:
        return f"Cluster({self.name!r}: {len(self.nodes):,} nodes, {self.total_cores:,} cores)"

    def without_sleep(self) -> Cluster:
        """Return the same machines, none of which can sleep: for results that rest on assumed sleep states."""
        awake = tuple(replace(node, sleep=None) for node in self.nodes)
        return replace(self, name=f"{self.name} without sleep", nodes=awake)

    @property
    def total_cores(self) -> int:
        return sum(node.cores for node in self.nodes)

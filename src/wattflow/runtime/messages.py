"""Messages between client, server and agents. Payloads are bytes: nobody on the way looks into them."""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

INLINE_BYTES = 64 * 1024
"""Payloads and results up to this size ride in messages; larger ones are objects."""

MOST_RETRIES = 1000

FOLDER_BYTES = 200
"""Of a folder's name; file systems take 255."""

LONGEST_NAME = 200
Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
Key = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^/\x00-\x1f]+$")]
Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Amount = Annotated[float, Meta(ge=0, le=1e18)]
Positive = Annotated[float, Meta(gt=0, le=1e18)]
Fence = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Bytes = Annotated[int, Meta(ge=0, le=2**60)]
Cpus = Annotated[float, Meta(gt=0, le=1e5)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
Times = Annotated[float, Meta(gt=0, le=1e6)]
LONGEST_S = 1e12
"""More than any time that a message may name."""
Joules = Annotated[float, Meta(ge=-1e18, le=1e18)]
Objective = Literal["energy", "response", "makespan", "edp", "cost", "utilisation"]


class Variant(Struct, frozen=True, omit_defaults=True):
    """One way to run a task and what it needs.

    Attributes:
        gpu: Share of one GPU below 1, or whole GPUs.
        fpga: Name of a kernel in the registry, which holds one FPGA.
        fpgas: FPGAs that a command of its own kernel holds.
        function: Object of the function for this variant; the task's own where None.
        architecture, features, device_models: What the node must be and have; empty takes any.
        device_duty: Part of its run for which it keeps its share of the device busy.
    """

    name: Name = "cpu"
    cpus: Annotated[float, Meta(ge=0, le=1e6)] = 1.0
    memory_bytes: Bytes = 0
    gpu: Annotated[float, Meta(ge=0, le=1024)] = 0.0
    gpu_memory_bytes: Bytes = 0
    fpga: Name | None = None
    runtime_factor: Positive = 1.0
    function: Hash | None = None
    fpgas: Annotated[int, Meta(ge=0, le=62)] = 0
    architecture: Name | None = None
    features: Annotated[tuple[Name, ...], Meta(max_length=62)] = ()
    device_models: Annotated[tuple[Name, ...], Meta(max_length=62)] = ()
    device_duty: Annotated[float, Meta(gt=0, le=1)] = 1.0
    device_duty_from: Literal["measured", "assumed"] = "assumed"


class Function(Struct, frozen=True, omit_defaults=True):
    """State facts of a function before it ever ran; what is measured replaces it (`model.workflow.Function`)."""

    name: Name
    cold_start_s: Seconds = 0.0
    compute_bound: Annotated[float, Meta(ge=0, le=1)] = 1.0
    failure_rate: Annotated[float, Meta(ge=0, le=1)] = 0.0
    checkpoint_s: Seconds = 0.0
    checkpoint_cost_s: Seconds = 0.0


class Blob(Struct, frozen=True, omit_defaults=True):
    """Bytes: here, or an object by name."""

    data: bytes | None = None
    object: Hash | None = None


class Task(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A task as submitted.

    Attributes:
        key: The client's own name of it, unique in its workflow; submitting it again changes nothing.
        command: Program and arguments; a task is either a command or a Python call.
        function: Object of the pickled function; ``call`` holds its pickled arguments.
        python: ``major.minor`` that made the payload; needed with ``function``.
        parents: Keys of tasks that must end well first.
        results: Keys of parents whose results the call wants, in the order in which the payload counts them.
        isolate: A process of its own, or (False) a worker that is used again.
        submit_s: Earliest start, seconds after the submission (as the deadline is).
        input_bytes: Bytes that it reads from shared storage.
        handed_bytes: Bytes that parents hand over, by their keys.
    """

    key: Key
    name: Name
    function_name: Name = "function"
    command: list[Annotated[str, Meta(max_length=131072)]] | None = None
    environment: dict[str, str] = {}
    function: Hash | None = None
    call: Blob | None = None
    python: Annotated[str, Meta(pattern=r"^\d+\.\d+$")] | None = None
    parents: list[Key] = []
    results: list[Key] = []
    variants: Annotated[list[Variant], Meta(min_length=1, max_length=16)] = msgspec.field(
        default_factory=lambda: [Variant()]
    )
    timeout_s: Positive | None = None
    retries: Annotated[int, Meta(ge=0, le=MOST_RETRIES)] = 0
    isolate: bool = True
    estimate_s: Seconds | None = None
    deadline_s: Seconds | None = None
    submit_s: Seconds = 0.0
    input_bytes: Bytes = 0
    handed_bytes: dict[Key, Bytes] = {}


class Submission(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Tasks for a workflow, new or open. ``seal`` says that no more will come."""

    workflow: Key
    name: Name = "workflow"
    tasks: list[Task] = []
    seal: bool = False
    objective: Objective | None = None
    deadline_s: Seconds | None = None
    energy_budget_j: Positive | None = None
    functions: list[Function] = []


class Accepted(Struct, frozen=True):
    """Answer to a submission: how many of its tasks are new."""

    workflow: str
    new: int
    known: int


class Energy(Struct, frozen=True, omit_defaults=True):
    """Joules of an attempt with the band they surely lie in, and where they come from."""

    energy_j: Joules
    low_j: Joules
    high_j: Joules
    provenance: str
    marginal_j: Joules = 0.0


class GpuUse(Struct, frozen=True, omit_defaults=True):
    """Describe the use that an attempt made of its GPU, over its whole run.

    Attributes:
        duty: Part of the time for which it kept its share busy.
        beside: Busy share of the others on the GPU, on average; 0 where it was alone.
        samples: Readings that this comes from.
        memory: Part of the time in which the GPU's memory was read or written, while it had the GPU to itself; None
            where nobody told.
    """

    duty: Annotated[float, Meta(ge=0, le=1)]
    beside: Annotated[float, Meta(ge=0, le=1024)] = 0.0
    samples: Annotated[int, Meta(ge=0, le=2**40)] = 0
    memory: Annotated[float, Meta(ge=0, le=1)] | None = None


Ending = Literal["done", "failed", "time_limit", "cancelled", "refused", "node_lost"]
"""How an attempt may end. ``refused`` and ``node_lost`` are not the task's own doing (`records.judge`)."""


class Ended(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An attempt's end, as whoever ran it tells it. Telling it twice is the same as once."""

    fence: Fence
    outcome: Ending
    started_s: Seconds | None = None
    ended_s: Seconds | None = None
    cold_s: Seconds = 0.0
    cpu_s: Seconds = 0.0
    peak_bytes: Bytes = 0
    result: Blob | None = None
    reason: str | None = None
    gpu: GpuUse | None = None


class Level(Struct, frozen=True, omit_defaults=True):
    """A ceiling of the clock, or a limit of the watts, of one device (its number) or of a node's processors (−1).

    ``value`` 0 is none: as it runs by itself.
    """

    kind: Literal["clock_mhz", "cap_w"]
    value: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    device: Annotated[int, Meta(ge=-1, le=62)] = -1


class Lease(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An attempt to run: everything that its node must know.

    ``fence`` is the attempt's id, ``owner`` whose workflow it is; ``adopts`` is that of an attempt that was given up
    while the node was silent, and that this one goes on with where it still runs. ``level`` is in force while it runs,
    where its node announced that it can be.
    """

    fence: Fence
    task: int
    number: int
    node: str
    workflow: str
    spec: Task
    variant: int = 0
    device: int = -1
    share: float = 0.0
    inputs: list[Blob] = []
    owner: str = ""
    adopts: Fence | None = None
    level: Level | None = None


class LevelCosts(Struct, frozen=True):
    """Seconds and joules of a function at each level of a device, over those at the first: as a profile has them."""

    seconds: Annotated[list[Times], Meta(min_length=1, max_length=32)]
    joules: Annotated[list[Times], Meta(min_length=1, max_length=32)]


class Device(Struct, frozen=True, omit_defaults=True):
    """A GPU or FPGA of a node, as its agent found it; watts where somebody knows or guesses them.

    ``busy`` and ``watts`` are the points of its curve over the busy share; without them ``idle_w`` and ``full_w`` are.
    ``clocks_mhz`` are the ceilings that its agent can set, falling, the first of them full; empty: none. ``caps_w``
    are limits of its watts, the same way, where it can set no clock.
    ``compute_bound`` is the part of a function's time that follows the clock, where that is known; ``responses`` are
    what was measured there, which goes before it.
    """

    kind: Literal["gpu", "fpga"]
    model: str = "generic"
    memory_bytes: Bytes = 0
    sharing: Literal["exclusive", "time-slice", "mps", "mig"] = "exclusive"
    slots: Annotated[int, Meta(ge=1, le=1024)] = 1
    interference: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    idle_w: Seconds | None = None
    full_w: Seconds | None = None
    speed: Annotated[float, Meta(ge=1e-6, le=1e6)] = 1.0
    reconfigure_s: Seconds = 0.0
    switch_loss: Seconds = 0.0
    busy: Annotated[list[Seconds], Meta(max_length=1024)] = []
    watts: Annotated[list[Seconds], Meta(max_length=1024)] = []
    provenance: Literal["measured", "attributed", "modelled", "guessed"] = "modelled"
    clocks_mhz: Annotated[list[Seconds], Meta(max_length=32)] = []
    compute_bound: dict[str, Annotated[float, Meta(ge=0, le=1)]] = {}
    responses: dict[str, LevelCosts] = {}
    caps_w: Annotated[list[Seconds], Meta(max_length=32)] = []


class Node(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A node as it announces itself.

    ``busy`` and ``watts`` are the points of its P(k), where known; ``wake_w`` is what it draws while it wakes,
    ``sleep_w`` while it sleeps, where somebody measured that. ``keep_alive_s`` is how long it holds a function warm
    that nobody uses; 0 says that nothing stays warm there. ``clocks_mhz`` are ceilings of its processors' clock that
    its agent can set, falling, the first of them full; ``caps`` says that it can limit their watts.
    """

    name: Name
    cpus: Cpus
    memory_bytes: Annotated[int, Meta(ge=1, le=2**60)]
    python: str = ""
    architecture: str = "x86_64"
    features: list[str] = []
    devices: Annotated[list[Device], Meta(max_length=62)] = []
    busy: Annotated[list[Seconds], Meta(max_length=1024)] = []
    watts: Annotated[list[Seconds], Meta(max_length=1024)] = []
    provenance: Literal["measured", "attributed", "modelled", "guessed"] = "modelled"
    speed: Annotated[float, Meta(ge=1e-6, le=1e6)] = 1.0
    sleeps: bool = False
    wake_s: Seconds = 0.0
    wake_w: Seconds | None = None
    sleep_w: Seconds | None = None
    keep_alive_s: Seconds = 600.0
    clocks_mhz: Annotated[list[Seconds], Meta(max_length=32)] = []
    caps: bool = False


class TaskEnergy(Struct, frozen=True):
    """Joules of one attempt."""

    fence: Fence
    energy: Energy


class Window(Struct, frozen=True):
    """A node's joules between two moments: its counter, split."""

    began_s: Seconds
    ended_s: Seconds
    counted_j: Joules
    idle_j: Joules
    tasks_j: Joules
    unattributed_j: Joules
    provenance: str


class Load(Struct, frozen=True, omit_defaults=True):
    """Describe how a node looks now. ``provenance`` is that of its watts: counted ones teach, others do not."""

    cpu_busy: float = 0.0
    memory_used_bytes: Bytes = 0
    watts: float | None = None
    provenance: str = "modelled"
    network_bytes: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    gpu_busy: list[float] = []


class Warm(Struct, frozen=True, omit_defaults=True):
    """An order to hold an owner's function ready: its objects, one for each variant that has its own."""

    function_name: Name
    objects: list[Hash]
    python: str
    owner: str = ""


class Warmed(Struct, frozen=True, omit_defaults=True):
    """Answer a `Warm`, or tell of a function that was warm: ready after so many seconds, or not (any more)."""

    function_name: Name
    ready: bool
    seconds: Seconds = 0.0
    reason: str = ""


PROTOCOL, OLDEST_PROTOCOL = 2, 1
"""The protocol of agents and servers, and the oldest that is understood: an agent that says nothing of it is
of 0.1.0 and speaks 1. Servers are brought up to date first, then agents one by one."""


class Announcement(Struct, frozen=True, omit_defaults=True):
    """A node, the life its agent is in, and what that speaks."""

    node: Node
    boot: str
    protocol: Annotated[int, Meta(ge=0, le=1_000_000)] = 1


class Announced(Struct, frozen=True):
    """Answer to an `Announcement`."""

    node: str
    protocol: int = 1
    epoch: int = 0


class Sync(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One turn of an agent: what happened since the last, and how long it will wait for leases.

    ``boot`` changes when the agent starts anew: attempts of an earlier boot are gone.
    """

    node: str
    boot: str
    holding: list[Fence] = []
    started: list[tuple[Fence, Seconds, Seconds]] = []
    ended: list[Ended] = []
    energy: list[TaskEnergy] = []
    windows: list[Window] = []
    warmed: list[Warmed] = []
    load: Load | None = None
    wait_s: Annotated[float, Meta(ge=0, le=30)] = 0.0


class Orders(Struct, frozen=True, omit_defaults=True):
    """Answer to a `Sync`: what to run, what to stop, and whether the server wants the node announced again.

    Attributes:
        epoch: The server's; an answer of an earlier one than the last comes from a server that was taken over.
        servers: Where the server, and those that wait to take over from it, are reached.
        levels: Clocks and limits to have in force from now on.
    """

    leases: list[Lease] = []
    stop: list[int] = []
    announce: bool = False
    power: Literal["", "sleep"] = ""
    warm: list[Warm] = []
    epoch: int = 0
    servers: list[str] = []
    levels: list[Level] = []


class Outcome(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A task's end as its client sees it."""

    key: str
    task: int
    state: Literal["done", "failed", "cancelled"]
    sequence: int
    result: Blob | None = None
    reason: str | None = None


class Outcomes(Struct, frozen=True):
    """Ends of a workflow's tasks after a sequence number."""

    outcomes: list[Outcome]
    last: int
    open: int


def as_name(text: str, otherwise: str) -> str:
    """Return what somebody calls something as a `Name`: cut to its length, and ``otherwise`` where it is empty."""
    return text.encode(errors="replace").decode()[:LONGEST_NAME] or otherwise


def workflow_id(name: str) -> str:
    """Make an id, as a server takes one, for a new workflow of this name; what has no place in a `Key` is a dash.

    So is a colon, by which `describe` knows a recipe.
    """
    plain = "".join(one if one.isprintable() and one not in "/:" else "-" for one in name[:100])
    return f"{plain}-{uuid.uuid4().hex[:12]}"


def folder_name(name: str) -> str:
    """The folder of something with a user's name: the name itself where that can be one, else its hash.

    ``.`` and ``..`` are other folders, and a name of 200 letters may have more bytes than a folder's may.
    """
    plain = re.fullmatch(r"[^./\x00-\x1f\x7f][^/\x00-\x1f\x7f]*", name) is not None
    try:
        fits = len(name.encode()) <= FOLDER_BYTES
    except UnicodeEncodeError:
        fits = False
    return name if plain and fits else f"_{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"


pack = msgspec.msgpack.Encoder().encode

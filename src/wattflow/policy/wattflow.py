"""wattflow: our own policy. Few joules, and nobody waits for them (``wait`` says how far that may go).

What people get without it is a scheduler that does not look at speeds, such as `kubernetes` with all nodes on. So a
task is *due* when such a scheduler would have it: its latest finish on the workflow's critical path, in seconds that
are means over the cluster's cores, plus ``wait`` − ``margin`` times that path (or its deadline, if that is earlier).
Every candidate is priced in joules:

    cost = run + cold start + transfer + (wake + idle) / max(1, α · n) + σ · seconds + λ · seconds late

- *run*: added watts × runtime × c / (X(D + c) − X(D)): what c more busy threads add to the node's throughput X (less
  than c beyond its cores) is what they buy.
- *idle*: (idle − sleep) watts for as long as the task keeps a node that can sleep awake beyond what already runs
  there; waking and idling are shared by (α of) the n waiting tasks that could fill the node now.
- η of what the task's cores idle after its end, until the others on the node have ended: their share of the node's
  (idle − sleep) watts (η = 0 by default). Tasks that end together then share nodes, and these empty at once.
- *seconds* until the end, crowding by hardware threads counted in, cost σ watts each; those after the due time λ more.
- A lower clock (of cores or of a device) is part of the place and priced alike. Its additional seconds cost no σ, but
  it must end in time even if the estimate errs: a task without slack, or of unknown length, has full clock.
- On nodes that are awake, the seconds that the task takes from those that run there already (χ of them at λ watts)
  choose among them.
- A place where the task would be late and take 1 + ρ times as long as it would by waiting for one of those under way to
  make room elsewhere, the wait included, is passed over and left to others: else the longest task of a stream runs on
  whichever node has room first, and that is the makespan.

So a critical task goes where it ends soonest, one with slack where it is frugal, and in a queue everything is late and
the rule becomes earliest finish. A sleeping node is woken when it is worth it beside the nodes that are awake; where
none of those has room, the task rather waits for one if the queue is likely to move before a node could wake, but no
longer than a wake takes: then it wakes one. The queue goes by latest start.

Nodes sleep after ς × their break-even time, ((wake + enter) energy over saved watts), times the μ-th power of their
merit: joules per unit of work at full load, the best class's over theirs. The frugal few stay awake through a lull;
the others sleep as soon as they are empty.

``wait`` = ∞ is another rule, see `patient`. O(candidates × attempts on a node) per task and variant; ties go to the
lower index, then to the higher frequency. A node without a profile is used only where none with one fits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattflow.engine.settings import PolicySettings
from wattflow.model.cluster import Cluster
from wattflow.model.workload import Workload
from wattflow.policy import effects, levels, patient, pricing, view
from wattflow.policy.base import Policy, vectorised
from wattflow.policy.jit import jit

DIAL = view.dials(
    wait=0.0, late=150.0, second=5.0, crowd=0.25, amortise=0.5, idle=2.0, merit=3.0, spare=0.2, margin=0.05, align=0.0
)
"""How long people may wait (in critical paths), λ and σ in watts, χ, α, ς, μ, ρ, the margin kept (in paths), and η."""
LIMITS = {**dict.fromkeys(DIAL.defaults, (0.0, math.inf)), "margin": (-10.0, 10.0)}
"""Nobody is paid for waiting, waking or being late: below 0 the rule would seek what it is to avoid."""
LENIENT = 0.01
"""A lower clock may make a task late by this part of its run: less than estimates err, so it counts as no time."""
DOUBT, DOUBT_OF_PATH = 0.2, 0.16
"""Parts of a run at a lower clock, and of its workflow's critical path, that must fit into the slack besides: more than
a standard error of a good estimate (20 %), and the error of a path, which is the longest of several by estimates."""
OF_SPREAD = 0.3
"""Part of the spread of the cores' pace by which one who does not look at speeds ends later than a path of mean
seconds: a stage of many tasks waits for the slowest core."""
SCARCE, QUEUED = 4.0, 1.0
"""Times of what the cluster has that those who wait and run must need for slack not to be free any more, and for such a
scheduler to lose nothing more on slow cores."""
CORES, DEVICES, SPREAD = 1, 2, 3
NOTES = view.notes("idle_w", "kept")
"""The cluster's idle watts, cores and devices; what is known of the candidates that were priced last (`pricing`)."""


@jit
def due_s(state, task):
    """Return when the task should have ended for nobody to wait."""
    allowed = view.param(state, DIAL.wait) - view.param(state, DIAL.margin)
    latest = view.rank(state, task) + allowed * view.path_s(state, task)
    if view.deadline_s(state, task) < math.inf:
        latest = min(latest, view.latest_start_s(state, task))
    return latest + view.typical_s(state, task)


@jit
def companions(state, variant, node):
    """Return how many waiting tasks, this one included, could share the node's waking."""
    # A node that holds exactly n of them must not count n − 1 for a rounding.
    room = math.floor(view.free_cores(state, node) / max(1e-6, view.variant_guaranteed(state, variant)) + 1e-9)
    return max(1.0, min(float(view.waiting(state)), room) * view.param(state, DIAL.amortise))


@jit
def longer_s(state, task, variant, candidate, run_s):
    """Return the seconds that a lower clock adds to a run; inf where nobody knows how long the task is."""
    if view.variant_level(state, variant) == 0:
        return 0.0
    if not view.has_estimate(state, task):
        return math.inf
    return max(0.0, run_s * (1.0 - 1.0 / view.level_seconds(state, task, variant, candidate)))


@jit
def is_scarce(state, variant, times):
    """Tell whether those that wait and run, were they all like this one, would need so many times what the cluster has.

    Then somebody waits for what a slower task holds longer: slack is not free.
    """
    tasks = float(view.waiting(state) + view.running(state))
    if view.variant_needs_device(state, variant):
        share = view.variant_share_u(state, variant) / view.WHOLE_U * view.variant_devices(state, variant)
        return tasks * share > times * view.recall(state, NOTES.idle_w, DEVICES)
    return tasks * view.variant_cores(state, variant) > times * view.recall(state, NOTES.idle_w, CORES)


@jit
def overdraws(longer_s, slack_s, run_s):
    """Tell whether a lower clock takes more of the slack that a task has at full clock than its estimate lets it."""
    # Of unknown length: there is no slack that anybody knows of.
    return longer_s == math.inf or longer_s > max(LENIENT * (run_s - longer_s), slack_s - DOUBT * run_s)


@jit
def left_idle_j(state, variant, candidate, until_s):
    """Price the cores that idle from a task's end on a node that others keep awake for so many seconds longer."""
    part = view.param(state, DIAL.align)
    if part == 0.0 or not 0.0 < until_s < math.inf:
        return 0.0
    node = view.node_of(state, candidate)
    share = view.variant_cores(state, variant) / max(1.0, view.node_cores(state, node))
    return part * until_s * share * (view.node_idle_w(state, node) - view.node_sleep_w(state, node))


@jit
def doubt_s(state, task, variant):
    """Return seconds of a path that nobody is sure of: its error, less what such a scheduler loses on slow cores."""
    part = DOUBT_OF_PATH
    # In a queue it is the place that decides and not the pace.
    if not view.variant_needs_device(state, variant) and not is_scarce(state, variant, QUEUED):
        part -= OF_SPREAD * view.recall(state, NOTES.idle_w, SPREAD)
    return part * view.path_s(state, task)


@jit
def price_j(state, task, variant, candidate, due):
    """Price a candidate wholly, but for what it takes from those that run there. What the price is made of is kept."""
    memory = state.memory
    at = pricing.slot(view.place_of(state, NOTES.kept), candidate)
    run_w = pricing.look(state, task, variant, candidate, at)
    price = view.UNKNOWN_COST
    if run_w < view.UNKNOWN_COST:
        finish_s = memory[at + pricing.FINISH]
        run_s = memory[at + pricing.RUN]
        joules = memory[at + pricing.WORTH]
        joules += memory[at + pricing.AWAKE] / companions(state, variant, view.node_of(state, candidate))
        until_s = memory[at + pricing.UNTIL] - view.now_s(state) - finish_s
        joules += left_idle_j(state, variant, candidate, until_s)
        late_s = view.now_s(state) + finish_s - due
        more_s = longer_s(state, task, variant, candidate, run_s)
        # The due time is as uncertain as the path that it comes from.
        if more_s > 0.0:
            slack_s = 0.0 if is_scarce(state, variant, SCARCE) else more_s - late_s - doubt_s(state, task, variant)
            if overdraws(more_s, slack_s, run_s):
                memory[at + pricing.PRICE] = math.inf
                return math.inf
        # Up to the due time slack is free: what a lower clock adds is not priced as seconds.
        joules += view.param(state, DIAL.second) * (finish_s - more_s)
        if late_s > 0.0:
            joules += view.param(state, DIAL.late) * late_s
        price = view.bounded(joules)
    memory[at + pricing.PRICE] = price
    return price


@jit
def known(state, task, variant, candidate, which):
    """Return one of the numbers of a candidate that is priced (`pricing`)."""
    return state.memory[pricing.found(state, task, variant, candidate, view.place_of(state, NOTES.kept)) + which]


@jit
def slower_s(state, task, finish_s, due):
    """Return seconds past its time that a choice adds itself: those behind a start at once on a core of mean speed."""
    return max(0.0, finish_s - max(view.typical_s(state, task), due - view.now_s(state)))


@jit
def sooner_on_s(state, task, variant, node, best):
    """Return seconds until the task would end if it took the place of an attempt on a node; ``best`` if that is less.

    Half of those that wait are taken to come first, spread over the nodes of the class: in a long queue nobody holds
    out for the fast nodes while slow ones idle.
    """
    if not view.is_on(state, node):
        return best
    room_s, device = view.next_room(state, variant, node)
    room_s *= 1.0 + 0.5 * view.waiting(state) / view.class_count(state, view.class_of(state, node))
    if room_s >= best:
        return best
    run_s = view.estimate_s(state, task) * view.factor_on(state, task, variant, node, device)
    busy = view.busy_cores(state, node)
    if device < 0 and busy > 0.0:
        run_s *= busy / view.throughput(state, node, busy)
    return min(best, room_s + run_s)


@jit
def sooner(state, task, enough_s):
    """(`sooner_s`, variant and node of that place).

    One for which the task would leave a place of ``enough_s`` seconds (`holds_out`) will do for the best: nobody looks
    further then.
    """
    best = math.inf
    best_variant = -1
    best_node = np.int64(-1)
    first, last = view.variants_of(state, task)
    for variant in range(first, last):
        if view.variant_level(state, variant) > 0:
            continue
        for cls in range(view.classes_n(state)):
            if not view.class_takes(state, variant, cls):
                continue
            for i in range(view.class_count(state, cls)):
                node = view.class_node(state, cls, i)
                there = sooner_on_s(state, task, variant, node, best)
                if there < best:
                    best = there
                    best_variant = variant
                    best_node = node
                    if holds_out(state, enough_s, best):
                        return best, best_variant, best_node
    return best, best_variant, best_node


@jit
def sooner_s(state, task):
    """Return seconds until the task would end if it took the place of the best attempt under way; inf without one."""
    return sooner(state, task, 0.0)[0]


@jit
def holds_out(state, finish_s, soon_s):
    """Tell whether a task that would be late leaves a place where it takes so long, for one that is about to come."""
    return finish_s > soon_s * (1.0 + view.param(state, DIAL.spare))


@jit
def pass_over(state, task, variant, out):
    """Take out places where a late task would end much later than where room is about to come.

    Others take these places; without this the longest task of a stream runs on whichever node has room first. A part of
    a gang takes what there is: it would hold out for a place that another part of its own gang is about to have.
    """
    if view.parts_of(state, task) > 1:
        return
    due = due_s(state, task)
    longest = 0.0
    for c in range(out.size):
        if out[c] < view.UNKNOWN_COST:
            finish_s = known(state, task, variant, c, pricing.FINISH)
            if slower_s(state, task, finish_s, due) > 0.0:
                longest = max(longest, finish_s)
    if longest == 0.0:
        return
    # A walk over all nodes, so only where some place would make the task late.
    soon_s = sooner_s(state, task)
    if not holds_out(state, longest, soon_s):
        return
    for c in range(out.size):
        if out[c] < view.UNKNOWN_COST:
            finish_s = known(state, task, variant, c, pricing.FINISH)
            if holds_out(state, finish_s, soon_s) and slower_s(state, task, finish_s, due) > 0.0:
                out[c] = math.inf


@jit
def taken_j(state, variant, candidate, run_s):
    """Price the seconds that a task of ``run_s`` seconds takes from those that run on the candidate's node."""
    lost_s = view.lost_s(state, variant, candidate, run_s) + run_s * pricing.beside(state, variant, candidate)[1]
    return view.param(state, DIAL.crowd) * view.param(state, DIAL.late) * lost_s


@jit
def queue_s(state, task, variant):
    """Return seconds until a busy node is likely to have room for the variant; inf where none could take it."""
    if view.running(state) == 0 or view.variant_needs_device(state, variant) or view.parts_of(state, task) > 1:
        return math.inf  # what runs may be other parts of its own gang, which wait for this one
    if not view.typical_s(state, task) > 0.0:
        return math.inf  # of unknown length, as those that run may be: nobody knows when room will come
    for cls in range(view.classes_n(state)):
        for i in range(view.class_count(state, cls)):
            node = view.class_node(state, cls, i)
            # Attempts that have outlasted their estimate promise nothing: whoever waited for them would wait for ever.
            if view.class_takes(state, variant, cls) and view.expects_end(state, node):
                # Wide tasks need cores of one node, which come free together only now and then.
                wide = max(1.0, view.variant_cores(state, variant))
                return view.waiting(state) * wide * wide * view.typical_s(state, task) / view.running(state)
    return math.inf


@jit
def waits_for_room(state, task, likely_s, wake_s):
    """Tell whether a task rather waits for a busy node than wakes one; from then on it is asked again in time."""
    # Room that is likely may never come: nobody pays more for that guess than twice the seconds of a wake.
    until_s = view.ready_s(state, task) + wake_s
    if likely_s >= wake_s or view.now_s(state) >= until_s:
        return False
    effects.hold_until(state, until_s)
    return True


@jit
def let_sleep(state, out):
    """Take the sleeping candidates out of the choice."""
    for c in range(out.size):
        if view.is_asleep(state, view.node_of(state, c)):
            out[c] = math.inf


@jit
def fill_prices(state, task, variant, out):
    """Price all candidates; inf on nodes without a thread left."""
    due = due_s(state, task)
    for c in range(out.size):
        if patient.crowded(state, variant, view.node_of(state, c)):
            out[c] = math.inf
        else:
            out[c] = price_j(state, task, variant, c, due)


@jit
def settle(state, task, variant, haste, out):
    """Turn prices into costs: inf on sleeping nodes not worth waking, and what the task takes from others.

    ``haste`` times the seconds in which a busy node is likely to have room are compared with those of waking one.
    """
    awake = math.inf
    asleep = math.inf
    wake_s = 0.0
    for c in range(out.size):
        if not view.is_asleep(state, view.node_of(state, c)):
            awake = min(awake, out[c])
        elif out[c] < asleep:
            asleep = out[c]
            wake_s = view.wait_s(state, c)
    likely_s = queue_s(state, task, variant) if awake == math.inf and asleep < math.inf else math.inf
    # Of equal prices the node that is awake.
    if awake <= asleep < math.inf or waits_for_room(state, task, haste * likely_s, wake_s):
        let_sleep(state, out)
    # Only now: what others lose chooses among places, and is no reason to wake a node.
    for c in range(out.size):
        if out[c] < view.UNKNOWN_COST:
            out[c] += taken_j(state, variant, c, known(state, task, variant, c, pricing.RUN))
    if view.param(state, DIAL.spare) < math.inf:
        pass_over(state, task, variant, out)


def score(state, task, variant, out):
    """Joules and priced seconds; with ``wait`` = ∞ joules for the whole cluster."""
    if view.param(state, DIAL.wait) == math.inf:
        patient.fill_costs(state, task, variant, view.recall(state, NOTES.idle_w, 0), out)
    else:
        fill_prices(state, task, variant, out)
        settle(state, task, variant, 1.0, out)


def priority(state, task):
    """Return the latest start: nobody waits, or by the deadline when waiting is free."""
    if view.param(state, DIAL.wait) == math.inf:
        return view.latest_start_s(state, task)
    return view.rank(state, task)


@vectorised
def rank(workflow: Workload, cluster: Cluster) -> NDArray[np.float64]:
    """Return the latest start of each task if nobody waits: on the critical path, or by a deadline that is earlier."""
    found = levels.levels(workflow, cluster)
    submit = workflow.workflow_submit_s[workflow.workflow] if len(workflow) else np.zeros(0)
    return np.minimum(workflow.deadline_s, submit + found.path) - found.rest


def merits(state: Any, cluster: Cluster) -> NDArray[np.float64]:
    """Return each class's joules per unit of work, all cores busy, idle watts included; inf without a profile."""
    found = np.full(len(state.classes), np.inf)
    first, count = state.classes["first"], state.classes["count"]
    # The cluster lists the nodes that are there in the order of their rows; rows of nodes that left are empty.
    rows = [state.class_nodes[at : at + n] for at, n in zip(first.tolist(), count.tolist(), strict=True)]
    there = np.sort(np.concatenate([np.zeros(0, np.int32), *rows]))
    for cls in np.flatnonzero(count).tolist():
        node = cluster.nodes[int(np.searchsorted(there, rows[cls][0]))]
        if node.power is not None:
            idle_w = sum(device.power.idle_w for device in node.devices)
            found[cls] = (node.power.at(node.cores) + idle_w) / (node.cores * node.speed)
    return found


def totals(state: Any, cluster: Cluster) -> list[float]:
    """Sum up the cluster: idle watts, cores (without those of platforms), devices, spread of the cores' pace."""
    classes = state.classes
    cores = np.where(classes.serverless == 1, 0.0, classes.cores * classes.count)
    idle_w = float((classes.idle_w * classes.count).sum())
    return [idle_w, float(cores.sum()), float(state.nodes.device_n.sum()), levels.pace_spread(cluster)]


def prepare(state: Any, cluster: Cluster) -> None:
    """Lay out the idle watts; set when nodes go to sleep, unless the cluster file or the run says when."""
    classes = state.classes
    view.lay_out(state, NOTES, idle_w=totals(state, cluster), kept=np.zeros(pricing.SIZE))
    saved_w = classes.idle_w - classes.sleep_w
    lost_j = (classes.wake_s + classes.enter_s) * classes.wake_w
    if state.params[DIAL.wait] == np.inf:
        share = np.full(len(classes), patient.SLEEP)
    else:
        merit = merits(state, cluster)
        known = np.isfinite(merit)
        best = float(merit[known].min(initial=np.inf))
        # Without a profile there is no merit: inf keeps the class out of ``ours``.
        ratio = np.divide(best, merit, out=np.full(len(merit), np.inf), where=known)
        share = float(state.params[DIAL.idle]) * ratio ** float(state.params[DIAL.merit])
    ours = (classes.sleepable == 1) & np.isinf(classes.sleep_after_s) & (saved_w > 0) & np.isfinite(share)
    classes.sleep_after_s[ours] = share[ours] * lost_j[ours] / saved_w[ours]


def added(state, task, variant, out):
    """Joules that the placement adds, at what they are worth."""
    for c in range(out.size):
        out[c] = pricing.worth_j(state, task, variant, c)


@jit
def fill_awake(state, task, variant, out):
    """Shares of what it costs to have the nodes on."""
    for c in range(out.size):
        finish_s = pricing.finish_s(state, task, variant, c)
        joules, until_s = view.awake_and_until(state, c, finish_s)
        out[c] = joules / companions(state, variant, view.node_of(state, c))
        out[c] += left_idle_j(state, variant, c, until_s - view.now_s(state) - finish_s)


def kept_awake(state, task, variant, out):
    """Price its share of what it costs to have the node on."""
    fill_awake(state, task, variant, out)


def seconds(state, task, variant, out):
    """Price the seconds until its end."""
    for c in range(out.size):
        out[c] = view.param(state, DIAL.second) * pricing.finish_s(state, task, variant, c)


def late(state, task, variant, out):
    """Price the seconds past its time."""
    due = due_s(state, task)
    for c in range(out.size):
        late_s = view.now_s(state) + pricing.finish_s(state, task, variant, c) - due
        out[c] = view.param(state, DIAL.late) * max(0.0, late_s)


def taken(state, task, variant, out):
    """Price the seconds that it takes from others on the node."""
    for c in range(out.size):
        out[c] = taken_j(state, variant, c, view.runtime_s(state, task, variant, c))


WATTFLOW = Policy(
    "wattflow",
    "few joules and nobody waits: idle watts, waking and late seconds priced",
    score=score,
    priority=priority,
    rank=rank,
    settings=PolicySettings(guarantees=(0.8,), frequencies=(0, 1, 2), wakes=True),
    params=DIAL.defaults,
    limits=LIMITS,
    prepare=prepare,
    slack=True,
    terms={"added": added, "kept awake": kept_awake, "seconds": seconds, "late": late, "taken": taken},
)

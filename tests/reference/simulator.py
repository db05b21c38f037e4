"""The reference simulator: from instant to instant, everything recomputed at each.

Written from docs/physics.md and nothing else; section numbers below are its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count, product

from reference.facts import Offer, Options, Policy, Record, Result, Stuck
from reference.meter import Meter
from reference.objects import INF, TOLERANCE, Attempt, LiveNode, at_clock
from reference.view import View
from wattflow.model.cluster import Cluster
from wattflow.model.workflow import Variant
from wattflow.model.workload import Workload

STORAGE = None
_NEXT = {"message": "wake", "wake": "cold", "cold": "latency", "latency": "bytes", "bytes": "hold", "hold": "run"}
_SPENT = {
    "message": "message",
    "wake": "wake",
    "cold": "cold",
    "latency": "data",
    "bytes": "data",
    "hold": "hold",
    "run": "run",
}


def simulate(workload: Workload, cluster: Cluster, policy: Policy, options: Options = Options()) -> Result:  # noqa: B008
    """Run the workload on the cluster to its end."""
    return Simulation(workload, cluster, policy, options).run()


@dataclass(slots=True)
class Reservation:
    """The head's: when it could start, on which node (a single part), as what, and what has ended by then."""

    shadow_s: float
    node: LiveNode | None
    offer: Offer
    parts: int
    gone: set[int]


class Simulation:
    """The state of a run, and what happens at an instant."""

    def __init__(self, workload: Workload, cluster: Cluster, policy: Policy, options: Options) -> None:
        if options.queue not in ("skip", "strict", "easy-backfill"):
            raise ValueError(f"the reference has no queue {options.queue!r}")
        self.workload, self.cluster, self.policy, self.options = workload, cluster, policy, options
        tasks = range(len(workload))
        self.parents = [workload.parents_of(t).tolist() for t in tasks]
        self.parent_bytes = [
            workload.parent_bytes[workload.parent_start[t] : workload.parent_start[t + 1]].tolist() for t in tasks
        ]
        self.children: list[list[int]] = [[] for _ in tasks]
        for task in tasks:
            for parent in self.parents[task]:
                self.children[parent].append(task)
        self.release_s = workload.release_s.tolist()
        self.runtime_s = workload.runtime_s.tolist()
        self.shape = [workload.shapes[s] for s in workload.shape.tolist()]
        self.offers = {
            id(shape): self._offers(shape.variants, workload.functions[shape.function].name)
            for shape in workload.shapes
        }
        self.missing_parents = [len(p) for p in self.parents]
        self.ready_s = [math.nan] * len(workload)
        self.open = set(tasks)
        self.abandoned: list[int] = []
        self.attempts_made = [0] * len(workload)
        self.parts_left = [shape.parts for shape in self.shape]
        self.work_share = [1.0] * len(workload)  # what is left of the task's work after checkpoints
        self.output_on: list[LiveNode | None] = [STORAGE] * len(workload)
        self.queue: list[int] = []
        self.arrivals = sorted(tasks, key=lambda t: (self.release_s[t], t))
        self.start_s = 0.0 if options.from_zero else min(self.release_s, default=0.0)
        self.now_s = self.start_s
        self.nodes = [LiveNode(i, node, idle_since_s=self.now_s) for i, node in enumerate(cluster.nodes)]
        self.node_changes = sorted(
            [(down_s, node, "lost") for node, down_s, _ in options.node_failures]
            + [(up_s, node, "back") for node, _, up_s in options.node_failures]
        )
        self.reservation: Reservation | None = None
        self.round_due_s = INF
        self.placed: list[Attempt] = []
        self.sequence = count()
        self.records: list[Record] = []
        self.meter = Meter(cluster, self.nodes)
        self.view = View(self)

    def _offers(self, variants: tuple[Variant, ...], function: str) -> list[Offer]:
        number = count()
        combined = [
            Offer(next(number), base, variant, guarantee, level)
            for base, variant in enumerate(variants)
            for guarantee in self.options.guarantees
            for level in self.options.levels
        ]
        # Levels of devices come after all others, at the nominal level of the node's cores.
        clocked = [
            Offer(next(number), base, variant, guarantee, 0, clock, function)
            for base, variant in enumerate(variants)
            for guarantee in self.options.guarantees
            for clock in self.options.levels
            if clock > 0 and variant.device is not None
        ]
        return [*combined, *clocked]

    # Time (section 1)

    def run(self) -> Result:
        while self.open:
            next_s = self.next_event_s()
            if next_s == INF:
                raise Stuck(f"{len(self.open)} tasks are open at {self.now_s} s and nothing will happen")
            self.advance(max(next_s, self.now_s))  # what was announced for before the start happens at the start
            self.instant()
        self.meter.close(self.start_s, self.now_s)
        return Result(
            tuple(self.records), self.meter.energy_j, self.meter.carbon_g, self.meter.cost,
            self.meter.peak_w, self.start_s, self.now_s, min(self.release_s, default=self.now_s), tuple(self.abandoned),
        )  # fmt: skip

    def advance(self, to_s: float) -> None:
        """Watts and rates are constant from now to then."""
        self.meter.add(self.now_s, to_s)
        passed_s = to_s - self.now_s
        for node in self.nodes:
            for attempt in node.attempts:
                if attempt.stage in ("bytes", "run"):
                    attempt.remaining = max(0.0, attempt.remaining - attempt.rate * passed_s)
        self.now_s = to_s

    def instant(self) -> None:
        """Fold what is due, decide, and repeat while that made more things due now."""
        while True:
            self.fold()
            if not self.open:
                return
            self.decide_if_due()
            self.set_rates()
            if self.next_event_s(rounds=False) > self.now_s:
                return

    def set_rates(self) -> None:
        for node in self.nodes:
            node.set_rates(self.now_s)

    def next_event_s(self, rounds: bool = True) -> float:
        times = [INF]
        for node in self.nodes:
            times += [node.due_s, self.sleep_due_s(node), self.capacity_due_s(node)]
            times += [min(a.due_s, a.limit_at_s) for a in node.attempts]
        if self.arrivals:
            times.append(self.release_s[self.arrivals[0]])
        if self.node_changes:
            times.append(self.node_changes[0][0])
        other_s = min(times)
        if not rounds:
            return other_s
        return min(other_s, self.round_due_s)

    def fold(self) -> None:
        """Finishes, failures, node changes, arrivals, timers: in this order."""
        now_s = self.now_s
        live = sorted((a for node in self.nodes for a in node.attempts), key=lambda a: a.sequence)
        due = [a for a in live if a.due_s <= now_s]
        failing = [a for a in due if a.stage == "run" and a.fails]
        over = [a for a in live if a.limit_at_s <= now_s]
        for attempt in due:
            if attempt not in attempt.node.attempts:
                continue  # cancelled with its gang a moment ago
            if attempt in failing:
                self.fail(attempt, "failed")
            else:
                self.finish_stage(attempt)
        for attempt in over:
            if attempt in attempt.node.attempts:
                self.fail(attempt, "time_limit")
        for node in self.nodes:
            if node.state == "waking" and node.due_s <= now_s:
                self.turn_on(node)
        self.fold_node_changes()
        while self.arrivals and self.release_s[self.arrivals[0]] <= now_s:
            task = self.arrivals.pop(0)
            if self.missing_parents[task] == 0 and task in self.open:
                self.enqueue(task)

    # Release and queue (sections 2 and 3)

    def enqueue(self, task: int) -> None:
        self.ready_s[task] = self.now_s
        self.queue.append(task)

    def close_task(self, task: int) -> None:
        """All parts are done: children whose last parent this was become ready, or wait for their release."""
        self.open.discard(task)
        for child in self.children[task]:
            self.missing_parents[child] -= 1
            if self.missing_parents[child] == 0 and child in self.open and self.has_arrived(child):
                self.enqueue(child)

    def has_arrived(self, task: int) -> bool:
        """Arrivals at this very instant are still to be folded, and queue the task then."""
        return task not in self.arrivals

    def decide_if_due(self) -> None:
        period_s = self.options.round_s
        if period_s is None:
            self.decide()
            return
        number = math.ceil(self.now_s / period_s - TOLERANCE)
        if abs(number * period_s - self.now_s) <= TOLERANCE:
            self.round_due_s = INF
            self.decide()
        else:
            self.round_due_s = number * period_s if self.queue else INF

    def decide(self) -> None:
        """One pass over the queue in order."""
        order = list(self.queue)
        priority = self.policy.priority
        if priority is not None:
            order.sort(key=lambda task: priority(self.view, task))
        self.reservation = None
        for task in order:
            if self.place(task):
                self.queue.remove(task)
            elif self.options.queue == "strict":
                break
            elif self.options.queue == "easy-backfill" and self.reservation is None:
                self.reservation = self.reserve(task)
        self.reservation = None
        for attempt in self.placed:  # decisions see what was placed before them, not what that sets in motion
            self.begin(attempt)
        self.placed.clear()

    def reserve(self, head: int) -> Reservation:
        """When the head could start if estimates were true, and where (for a single part)."""
        offer, parts = self.offers[id(self.shape[head])][0], self.shape[head].parts
        placed = [(self.estimated_end_s(a), a.sequence, a) for node in self.nodes for a in node.attempts]
        held = Reservation(INF, None, offer, parts, set())
        for end_s, sequence, ended in sorted(placed, key=lambda row: row[:2]):
            if end_s > held.shadow_s:
                break
            held.gone.add(sequence)
            if held.shadow_s == INF and sum(n.rooms(offer, held.gone, self.now_s) for n in self.nodes) >= parts:
                held.shadow_s, held.node = end_s, ended.node if parts == 1 else None
        return held

    def estimated_end_s(self, attempt: Attempt) -> float:
        known_s = float(self.workload.estimate_s[attempt.task])
        if math.isnan(known_s):
            return INF
        return attempt.placed_s + self.work_s(known_s, attempt.task, attempt.offer, attempt.node, attempt.devices)

    def delays_head(self, task: int, node: LiveNode, devices: tuple[int, ...], offer: Offer) -> bool:
        """Whether a backfilled task would hold, past the shadow time, what the head needs then."""
        held = self.reservation
        if held is None or (held.node is not None and node is not held.node):
            return False
        known_s = float(self.workload.estimate_s[task])
        runs_s = INF if math.isnan(known_s) else self.work_s(known_s, task, offer, node, devices)
        if self.now_s + runs_s <= held.shadow_s:
            return False
        trial = Attempt(task, 0, 0, self.shape[task].function, offer, node, devices, -1, self.now_s, self.now_s)
        node.attempts.append(trial)
        left = sum(other.rooms(held.offer, held.gone, self.now_s) for other in self.nodes)
        node.attempts.remove(trial)
        return left < held.parts

    # Fit and choice (section 4)

    def place(self, task: int) -> bool:
        """Place all parts of a task, one after the other, or none."""
        gang: list[Attempt] = []
        for part in range(self.shape[task].parts):
            choice = self.best(task)
            if choice is None:
                for attempt in gang:
                    attempt.node.attempts.remove(attempt)
                return False
            node, devices, offer = choice
            attempt = Attempt(
                task, part, self.attempts_made[task], self.shape[task].function, offer, node, devices,
                next(self.sequence), self.ready_s[task], self.now_s,
            )  # fmt: skip
            node.attempts.append(attempt)
            gang.append(attempt)
            if self.reservation is not None and self.estimated_end_s(attempt) <= self.reservation.shadow_s:
                self.reservation.gone.add(attempt.sequence)
        self.attempts_made[task] += 1
        self.parts_left[task] = len(gang)
        self.placed += gang
        return True

    def best(self, task: int) -> tuple[LiveNode, tuple[int, ...], Offer] | None:
        """The cheapest fitting pair; ties to the lower node, then device, then variant."""
        awake = self.candidates(task, ("on", "waking"))
        asleep = self.candidates(task, ("asleep", "falling"))
        if not self.options.see_sleeping:
            fitting = {offer.index for _, _, offer in awake}
            asleep = [row for row in asleep if row[2].index not in fitting]
        priced = []
        for node, devices, offer in awake + asleep:
            if self.delays_head(task, node, devices, offer):
                continue
            device = devices[0] if devices else -1
            cost = self.policy.cost(self.view, task, offer, node.index, device)
            if math.isnan(cost):
                raise ValueError(f"{self.policy.name} gave NaN for task {task}")
            priced.append((cost, node.index, device, offer.index, (node, devices, offer)))
        cheapest = min(priced, key=lambda row: row[:4], default=None)
        return None if cheapest is None or cheapest[0] == INF else cheapest[4]

    def candidates(self, task: int, states: tuple[str, ...]) -> list[tuple[LiveNode, tuple[int, ...], Offer]]:
        found = []
        for node in self.nodes:
            if node.state not in states:
                continue
            for offer, devices in node.placements(self.offers[id(self.shape[task])], self.now_s):
                if not self.too_long(task, offer, node, devices):
                    found.append((node, devices, offer))
        return found

    def too_long(self, task: int, offer: Offer, node: LiveNode, devices: tuple[int, ...]) -> bool:
        platform = node.facts.serverless
        if platform is None:
            return False
        return self.work_s(float(self.workload.estimate_s[task]), task, offer, node, devices) > platform.time_limit_s

    def work_s(self, seconds: float, task: int, offer: Offer, node: LiveNode, devices: tuple[int, ...]) -> float:
        """W: seconds of work alone on that node or device, at that frequency (section 6)."""
        function = self.workload.functions[self.shape[task].function]
        if devices:
            cards = [node.facts.devices[d] for d in devices]
            speed = min(card.speed / at_clock(card, function.name, offer.clock)[0] for card in cards)
        else:
            speed = node.facts.function_speed.get(function.name, node.facts.speed)
        bound, level = function.compute_bound, node.facts.frequencies[offer.level]
        return seconds * offer.variant.runtime_factor / speed * ((1 - bound) + bound / level.speed)

    # Stages of an attempt (section 5)

    def begin(self, attempt: Attempt) -> None:
        """The moment of placement: where the data lie is known then."""
        attempt.bytes, attempt.latency_s = self.to_fetch(attempt)
        self.enter(attempt, "message")

    def take_container(self, attempt: Attempt) -> float:
        """Seconds of cold start: none if a container of the function is idle on the node."""
        node, function = attempt.node, self.workload.functions[attempt.function]
        if function.cold_start_s <= 0:
            return 0.0
        idle = [s for s in node.idle_containers[attempt.function] if self.now_s - s < node.facts.keep_alive_s]
        node.idle_containers[attempt.function] = idle
        if idle:
            idle.remove(max(idle))
            return 0.0
        return function.cold_start_s * node.facts.cold_start_factor

    def reconfigure(self, attempt: Attempt) -> float:
        node, seconds = attempt.node, 0.0
        for index in attempt.devices:
            device = node.facts.devices[index]
            if device.kind == "fpga" and node.loaded.get(index) != attempt.function:
                seconds = max(seconds, device.reconfigure_s)
                node.loaded[index] = attempt.function
        return seconds

    def to_fetch(self, attempt: Attempt) -> tuple[float, float]:
        """(bytes that are not on the node, latency)."""
        node, network = attempt.node, attempt.node.facts.network
        size, latency_s, far = float(self.workload.input_bytes[attempt.task]), network.latency_s, False
        for parent, handed in zip(self.parents[attempt.task], self.parent_bytes[attempt.task], strict=True):
            source = self.output_on[parent]
            if source is not node:
                size += handed
                far = far or (handed > 0 and source is not STORAGE and source.facts.zone != node.facts.zone)
        return size, latency_s + (network.zone_latency_s if far else 0.0)

    def enter(self, attempt: Attempt, stage: str) -> None:
        """Go to a stage, or past it when it takes no time."""
        attempt.stage, attempt.stage_since_s, attempt.due_s, attempt.rate = stage, self.now_s, INF, 0.0
        if stage == "wake":
            self.ask_to_wake(attempt.node)
            if attempt.stage != "wake":
                return  # it was on at once
        elif stage == "cold":
            attempt.cold_for_s = self.take_container(attempt) + self.reconfigure(attempt)
        lasts_s = {
            "message": self.options.message_s,
            "wake": 0.0 if attempt.node.state == "on" else INF,
            "cold": attempt.cold_for_s,
            "latency": attempt.latency_s if attempt.bytes > 0 else 0.0,
        }
        if stage == "bytes" and attempt.bytes > 0:
            attempt.remaining = attempt.bytes
        elif stage == "hold" and self.shape[attempt.task].parts > 1:
            self.start_gang(attempt.task)
        elif stage == "run":
            self.start(attempt)
        elif lasts_s.get(stage, 0.0) > 0:
            attempt.due_s = self.now_s + lasts_s[stage]
        else:
            self.enter(attempt, _NEXT[stage])

    def start_gang(self, task: int) -> None:
        """All parts start together, once the last of them holds."""
        parts = [a for node in self.nodes for a in node.attempts if a.task == task]
        if all(a.stage == "hold" for a in parts):
            for part in sorted(parts, key=lambda a: a.sequence):
                self.finish_stage(part)

    def start(self, attempt: Attempt) -> None:
        """Begin the run stage: how much work there is, and where in it the attempt fails."""
        attempt.start_s = self.now_s
        attempt.work_s = self.attempt_work_s(attempt)
        attempt.remaining = attempt.work_s
        fraction = self.options.task_failures.get((attempt.task, attempt.number)) if attempt.part == 0 else None
        if fraction is not None:
            attempt.fails, attempt.remaining = True, fraction * attempt.work_s
        if attempt.node.facts.serverless is not None:
            attempt.limit_at_s = self.now_s + attempt.node.facts.serverless.time_limit_s

    def finish_stage(self, attempt: Attempt) -> None:
        attempt.spent_s[_SPENT[attempt.stage]] += self.now_s - attempt.stage_since_s
        if attempt.stage == "run":
            self.finish(attempt)
        else:
            if attempt.stage == "bytes":
                self.meter.transfer(attempt, self.now_s)
            self.enter(attempt, _NEXT[attempt.stage])

    def finish(self, attempt: Attempt) -> None:
        """A part ended well."""
        self.leave(attempt, "done")
        if self.workload.functions[attempt.function].cold_start_s > 0:
            attempt.node.idle_containers[attempt.function].append(self.now_s)
        self.parts_left[attempt.task] -= 1
        if self.parts_left[attempt.task] == 0:
            self.output_on[attempt.task] = STORAGE if attempt.node.facts.serverless else attempt.node
            self.close_task(attempt.task)

    def leave(self, attempt: Attempt, outcome: str) -> None:
        """Give back what the attempt held, and write its record."""
        node = attempt.node
        node.attempts.remove(attempt)
        if not node.attempts:
            node.idle_since_s = self.now_s
        if outcome != "done":
            attempt.spent_s[_SPENT[attempt.stage]] += self.now_s - attempt.stage_since_s
            self.meter.lose(attempt)
        self.meter.use(attempt, self.now_s)
        spent = attempt.spent_s
        self.records.append(Record(
            attempt.task, attempt.part, attempt.number, node.index, attempt.devices[0] if attempt.devices else -1,
            attempt.offer.base, outcome, attempt.ready_s, attempt.placed_s, attempt.start_s, self.now_s,
            spent["message"], spent["wake"], spent["cold"], spent["data"], spent["hold"],
            attempt.run_j, attempt.cold_j, attempt.transfer_j, attempt.offer.guarantee,
        ))  # fmt: skip

    # Sleep and capacity (sections 4 and 8)

    def sleep_due_s(self, node: LiveNode) -> float:
        sleep = node.facts.sleep
        if sleep is None or sleep.after_s is None or node.state != "on" or node.attempts:
            return INF
        return node.idle_since_s + sleep.after_s

    def capacity_due_s(self, node: LiveNode) -> float:
        """When a function platform next offers the cores that a waiting task needs there."""
        platform = node.facts.serverless
        if platform is None or platform.ramp_per_s <= 0 or not self.queue:
            return INF
        due_s = INF
        for shape in {id(self.shape[task]): self.shape[task] for task in self.queue}.values():
            for offer, parts in product(self.offers[id(shape)], range(1, shape.parts + 1)):
                wanted = node.guaranteed_cores() + parts * offer.guaranteed_cores
                at_s = (wanted - platform.burst) / platform.ramp_per_s
                if at_s > self.now_s and wanted <= node.facts.request_cores and node.suits(offer):
                    due_s = min(due_s, at_s)
        return due_s

    def ask_to_wake(self, node: LiveNode) -> None:
        if node.state == "asleep":
            self.wake(node)
        elif node.state == "falling":
            node.wake_after_fall = True

    def wake(self, node: LiveNode) -> None:
        assert node.facts.sleep is not None
        if node.facts.sleep.wake_s > 0:
            node.state, node.due_s = "waking", self.now_s + node.facts.sleep.wake_s
        else:
            self.turn_on(node)

    def turn_on(self, node: LiveNode) -> None:
        node.state, node.due_s, node.idle_since_s = "on", INF, self.now_s
        for attempt in [a for a in node.attempts if a.stage == "wake"]:
            self.finish_stage(attempt)

    def fold_node_changes(self) -> None:
        while self.node_changes and self.node_changes[0][0] <= self.now_s:
            _, index, change = self.node_changes.pop(0)
            if change == "lost":
                self.lose_node(self.nodes[index])
            else:
                self.turn_on(self.nodes[index])
        for node in self.nodes:
            if node.state == "falling" and node.due_s <= self.now_s:
                node.state, node.due_s = "asleep", INF
                if node.wake_after_fall:
                    node.wake_after_fall = False
                    self.wake(node)
            if self.sleep_due_s(node) <= self.now_s:
                assert node.facts.sleep is not None
                enter_s = node.facts.sleep.enter_s
                node.state, node.due_s = ("falling", self.now_s + enter_s) if enter_s > 0 else ("asleep", INF)

    # Failures (section 9)

    def attempt_work_s(self, attempt: Attempt) -> float:
        """Work left after checkpoints, and the cost of those still to come."""
        function = self.workload.functions[attempt.function]
        useful_s = self.full_work_s(attempt) * self.work_share[attempt.task]
        return useful_s + self.checkpoints(attempt) * function.checkpoint_cost_s

    def full_work_s(self, attempt: Attempt) -> float:
        return self.work_s(self.runtime_s[attempt.task], attempt.task, attempt.offer, attempt.node, attempt.devices)

    def checkpoints(self, attempt: Attempt) -> int:
        """How many an attempt writes: one after each ``checkpoint_s`` of work, none at the very end."""
        function = self.workload.functions[attempt.function]
        useful_s = self.full_work_s(attempt) * self.work_share[attempt.task]
        if function.checkpoint_s <= 0 or useful_s <= 0:
            return 0
        return max(0, math.ceil(useful_s / function.checkpoint_s - TOLERANCE) - 1)

    def fail(self, attempt: Attempt, outcome: str) -> None:
        """An attempt ends badly: so do its other parts; the task is queued again if it has attempts left."""
        task, function = attempt.task, self.workload.functions[attempt.function]
        if attempt.stage == "run" and self.shape[task].parts == 1:
            fraction = self.options.task_failures.get((task, attempt.number), 1.0) if attempt.fails else 1.0
            left_s = 0.0 if outcome == "failed" else attempt.remaining
            done_s = attempt.work_s * fraction - left_s
            period_s = function.checkpoint_s + function.checkpoint_cost_s
            written = self.checkpoints(attempt)
            if written:
                written = min(written, math.floor(done_s / period_s + TOLERANCE))
                self.work_share[task] -= written * function.checkpoint_s / self.full_work_s(attempt)
        self.leave(attempt, outcome)
        others = [a for node in self.nodes for a in node.attempts if a.task == task]
        for other in sorted(others, key=lambda a: a.part):
            lost = outcome == "node_lost" and other.node is attempt.node
            self.leave(other, "node_lost" if lost else "cancelled")
        if self.attempts_made[task] <= self.options.max_retries and outcome != "time_limit":
            self.enqueue(task)
        else:
            self.abandon(task)

    def abandon(self, task: int) -> None:
        """Give a task up, and with it all that descend from it."""
        if task in self.open:
            self.open.discard(task)
            self.abandoned.append(task)
            for child in self.children[task]:
                self.abandon(child)

    def lose_node(self, node: LiveNode) -> None:
        for attempt in sorted(node.attempts, key=lambda a: a.sequence):
            if attempt in node.attempts:
                self.fail(attempt, "node_lost")
        node.state, node.due_s, node.wake_after_fall = "lost", INF, False
        node.idle_containers.clear()
        node.loaded.clear()

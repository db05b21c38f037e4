"""`Engine`: what every driver holds. Events in, placements and actions out, the caller's clock."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from wattflow.engine import groups, tables
from wattflow.engine.build import Names
from wattflow.engine.settings import QUEUES, SELECTIONS
from wattflow.engine.validate import validate_state
from wattflow.kernel import jit, random
from wattflow.live import growth, kernels, reasons, step_buffers, stepping
from wattflow.live import protocol as p
from wattflow.live.caller_choice import CallerChoice
from wattflow.live.inbox import Inbox
from wattflow.live.nodebook import NodeBook
from wattflow.live.protocol import Kind
from wattflow.live.shapebook import ShapeBook, shape_facts
from wattflow.live.workflow_notes import WorkflowNotes, live_policy, needs_places, open_flows
from wattflow.model.cluster import Cluster, Node
from wattflow.model.errors import BrokenPolicy
from wattflow.model.workflow import Function, Variant
from wattflow.model.workload import Workload
from wattflow.policy import bind
from wattflow.policy.base import Policy

_ANY_PODS = 1 << 40


class Engine:
    """A scheduler without a clock. See docs/driving.md for the whole contract.

    Args:
        policy: A registered name or a Policy.
        cluster: Nodes to begin with.
        seed: Of the policy's own random stream.
        max_retries: Tries after the first.
        score_limit: Finite costs after which no more candidates of a task are scored; 0 scores all.
    """

    def __init__(
        self,
        policy: str | Policy = "least-energy",
        cluster: Cluster | None = None,
        seed: int = 0,
        *,
        max_retries: int = 3,
        score_limit: int = 0,
    ) -> None:
        self.policy = live_policy(policy)
        self.state = growth.empty_state()
        self.state.rules["max_retries"] = max_retries
        self.state.rules["score_limit"] = score_limit
        self.state.clock["random"] = random.stream(seed)
        names = Names({}, {}, {})
        self._nodes = NodeBook(self.state, names)
        self._shapes = ShapeBook(self.state, names, self._nodes, self.policy.settings)
        self._places = WorkflowNotes(self.state, self._nodes, self._shapes, cluster)
        self._desk = step_buffers.make_desk(1024, len(self.state.placed), len(self.state.actions))
        self._now = -math.inf
        self._timers = self._told_last = 0
        with jit.compiling():
            self._kernels = kernels.kernels(self.state, self._desk)
            self.use(self.policy)
        self._take_up()
        if cluster is not None:
            for zone in cluster.zones:
                self._nodes.zones.setdefault(zone.name, len(self._nodes.zones))
            for node in cluster.nodes:
                self.node(node)

    def _take_up(self) -> None:
        """Make what follows from the rest, at the start and for a copy."""
        self._inbox = Inbox(self.state, self._desk, self._nodes, self._shapes, self._kernels)
        self._refresh()

    @property
    def _told(self) -> list[Any]:
        """Return what the inbox holds beside the desk's rows, for copies."""
        return [self._inbox.count, list(self._inbox.gone)]

    @_told.setter
    def _told(self, told: list[Any]) -> None:
        self._inbox.count, self._inbox.gone = told[0], list(told[1])

    # What there is

    def use(self, policy: str | Policy) -> None:
        """Decide by another policy from now on; the queue is ordered anew and the offers are its own."""
        policy = live_policy(policy)
        before, self.policy, state = self.policy, policy, self.state
        settings = policy.settings
        if settings is not self._shapes.settings:
            self._shapes.offer_again(settings)
        state.rules["queue"] = QUEUES.index(settings.queue)
        state.rules["selection"] = SELECTIONS.index(settings.selection)
        for flag in ("largest", "dynamic", "wakes", "grouped", "parks", "local", "alike"):
            state.rules[flag] = int(getattr(settings, flag))
        growth.fit_boards(state)
        # A driver tells of the pods that a node takes; so many only tells nodes with other numbers of pods apart.
        pods = _ANY_PODS if settings.pods else 0
        # Free pods are part of what makes two nodes equal, so the groups are others now.
        if int(state.rules["pods"][0]) != pods:
            state.rules["pods"] = pods
            with _quiet():
                groups.rebuild(state.handle())
        state.params[:] = 0
        for i, value in enumerate(policy.params.values()):
            state.params[i] = value
        # By identity: two settings of one policy share their functions, and nothing else does.
        same = policy.score is not None and policy.score is before.score
        if not same:  # another setting of the same rules may go on with what it noted
            state.memory[:] = 0
        self._functions = bind.bind(policy, state)
        self._sees_workflows = needs_places(policy)
        self._places.nodes_changed()
        self._let_prepare()
        self._look_at_idle_nodes()
        self._order_again()

    def _let_prepare(self) -> None:
        """Have the policy note its nodes and time-outs; those that it gave before are not taken for the nodes' own."""
        self._nodes.set_sleep_after(self.policy.sleep_after_s)
        if self.policy.prepare is not None and self._nodes.facts:
            self.policy.prepare(self.state, self._places.cluster())

    def _look_at_idle_nodes(self) -> None:
        """Let nodes that idle already sleep by the time-outs of the policy in use."""
        self._timer_room = -1
        if self._nodes.facts:
            self._make_timer_room(len(self.state.nodes))
            self._kernels.recheck(self.state.handle())

    def _waiting(self) -> Any:
        """List the rows of all tasks in the queue, in order of entry; ghosts leave it for good."""
        state = self.state
        states = state.tasks.state
        states[states == tables.GHOST] = tables.CANCELLED
        for task in np.flatnonzero(states == tables.LEFT).tolist():
            state.tasks.state[task] = tables.FREE
            # LEFT: forgotten while its ghost stood in the queue. The new queue has no ghosts: its row is free now.
            state.tasks.next[task] = state.counts.free_task[0]
            state.counts["free_task"] = task
        state.shapes["ghosts"] = 0
        rows = np.flatnonzero(states == tables.READY)
        return rows[np.argsort(state.tasks.sequence[rows], kind="stable")]

    def _order_again(self) -> None:
        """Write notes and keys of all open tasks, as the policy in use has them."""
        waiting = self._waiting()
        self._places.start(self.policy)
        if needs_places(self.policy):
            self._places.note(self.policy, *open_flows(self.state), self._add_lane)
        self._kernels.requeue(self.state.handle(), self._functions, waiting)

    def prefer(self, tasks: Sequence[int]) -> None:
        """Let these tasks, as far as they wait, go before all others that the policy's order takes for equal."""
        rows = [self._inbox.row(task, p.TASK_ID, self._inbox.task_generation) for task in tasks]
        first = np.isin(waiting := self._waiting(), rows)
        self._kernels.requeue(self.state.handle(), self._functions, np.concatenate([waiting[first], waiting[~first]]))

    def _add_lane(self, earlier: int, later: int) -> None:
        # A lane is an edge; False says that the table is full and nothing was written.
        while not self._kernels.add_lane(self.state.handle(), earlier, later):
            growth.double_edges(self.state)

    def node(
        self,
        node: Node,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[p.Taint] = (),
        counts: Mapping[str, int] | None = None,
    ) -> int:
        """Let a node join, which takes work from the next step on; its id.

        The name of a node that is there changes it: labels, taints, counts, amounts, speed, watts, sleep state. What
        runs there goes on, and its devices stay those that it came with.
        """
        known = self._nodes.by_name.get(node.name)
        if known is not None and not self._is_going(known):
            return self._node_again(known, node, labels or {}, tuple(taints), counts or {})
        with _quiet():
            row = self._nodes.add(node, labels or {}, tuple(taints), counts or {})
        self._refresh()
        identity = p.make_id(p.NODE_ID, row, int(self.state.node_marks.generation[row]))
        if node.serverless is not None:
            self._desk.words["ramps"] = 1
        self._inbox.put(Kind.NODE, identity, state=p.Power.ON)
        return identity

    def _is_going(self, row: int) -> bool:
        return any(p.row_of(identity) == row for identity in self._inbox.gone)

    def _node_again(
        self, row: int, node: Node, labels: Mapping[str, str], taints: tuple[p.Taint, ...], counts: Mapping[str, int]
    ) -> int:
        identity = p.make_id(p.NODE_ID, row, int(self.state.node_marks.generation[row]))
        facts = self._nodes.facts[row]
        if labels != facts.labels or taints != facts.taints:
            self._nodes.relabel(row, labels, taints)
        for name in {*counts, *facts.counts}:
            more = counts.get(name, 0) - facts.counts.get(name, 0)
            if more:
                self._inbox.put_more(identity, name, more)
        self._nodes.facts[row] = replace(self._nodes.facts[row], counts=dict(counts))
        with _quiet():
            self._nodes.become(row, node)
        self._refresh()
        self._inbox.put(Kind.NODE, identity, cores=node.request_cores, memory_bytes=node.memory_bytes)
        return identity

    def constraint(self, constraint: p.Constraint) -> int:
        """Tell where tasks of a shape may go. The same values give the same id."""
        row = self._nodes.rules.add(constraint)
        return p.make_id(p.CONSTRAINT_ID, row, int(self._nodes.rules.generations[row]))

    def resource(self, name: str) -> None:
        """Make a countable resource known; at most eight."""
        self._nodes.resource(name)

    def shape(
        self,
        variants: Sequence[Variant],
        function: Function | str = "task",
        parts: int = 1,
        level: int = 0,
        constraint: int | None = None,
        counts: Mapping[str, int] | None = None,
        groups: Sequence[str] = (),
    ) -> int:
        """Register what tasks of one kind need. The same values give the same id."""
        name = self._shapes.function(function)
        rules = self._nodes.rules
        chosen = 0 if constraint is None else self._inbox.current(constraint, p.CONSTRAINT_ID, rules.generations)
        row = self._shapes.add(shape_facts(variants, name, parts, level, chosen, counts or {}, groups))
        if len(self._inbox.shape_generation) < len(self.state.shapes):
            self._refresh()
        return p.make_id(p.SHAPE_ID, row, int(self.state.shapes.generation[row]))

    def function(self, function: Function) -> None:
        """Replace what is known of a function from now on; shapes and tasks that name it stay as they are."""
        self._shapes.function(function)

    def workflow(
        self, submit_s: float | None = None, deadline_s: float | None = None, tag: int = 0, weights: float = 0.0
    ) -> int:
        """Open a workflow, submitted at the last step's time unless told otherwise; its id. See `weighted.packed`."""
        submit = float(self.state.clock["now"][0]) if submit_s is None else submit_s
        about = (submit, math.inf if deadline_s is None else deadline_s, tag)
        identity = self._kernels.open_workflow(self.state.handle(), *about)
        if identity < 0:
            growth.grow_workflows(self.state, 2 * len(self.state.workflows))
            self._refresh()
            identity = self._kernels.open_workflow(self.state.handle(), *about)
        self.state.workflows["rank"][identity & p.ROW_MASK] = weights
        return int(identity)

    def room(self, tasks: int, attempts: int) -> None:
        """Take memory for so many tasks and attempts now, ahead of need. Ids that come after may be others."""
        if len(self.state.tasks) < tasks:
            growth.grow_tasks(self.state, tasks)
        if len(self.state.attempts) < attempts:
            growth.grow_attempts(self.state, attempts)
        self._refresh()

    def drop(self, identity: int) -> None:
        """Give up a shape or constraint; its row is free when the last task that uses it has ended."""
        if p.what_of(identity) == p.CONSTRAINT_ID:
            self._nodes.rules.drop(self._inbox.row(identity, p.CONSTRAINT_ID, self._nodes.rules.generations))
        else:
            self._shapes.drop(self._inbox.row(identity, p.SHAPE_ID, self._inbox.shape_generation))
        self._sweep()

    def _sweep(self) -> None:
        self._shapes.sweep()
        if self._nodes.rules.dropped:
            self._nodes.rules.sweep(self._shapes.constraints)

    # Events

    def put(self, kind: Kind, *who: Any, **fields: Any) -> int:
        """Take an event, folded by the next step; docs/driving.md lists the fields of each kind. TASK gives an id."""
        return self._inbox.put(kind, *who, **fields)

    def known(self, workflows: Sequence[int], loose: Sequence[int] = ()) -> Workload | None:
        """Return workflows as the engine knows them, with estimates for runtimes; None without any task.

        Args:
            workflows: Their rows.
            loose: Rows of tasks without a workflow, each a workflow of its own here.
        """
        return self._places.known(workflows, loose)

    @property
    def cluster(self) -> Cluster:
        """Return the nodes that are there now."""
        return self._places.cluster()

    def pin(self, task: int, node: int | None) -> None:
        """Let only this node take a task that waits, for work found running there; None: any may."""
        row = self._inbox.row(task, p.TASK_ID, self._inbox.task_generation)
        at = -1 if node is None else self._inbox.current(node, p.NODE_ID, self._inbox.node_generation)
        self.state.tasks.pinned[row] = at

    def _refresh(self) -> None:
        """Look up columns anew after tables have grown."""
        self._inbox.refresh()
        self._words = self._desk.words.view(np.ndarray)[0:1]
        self._timer_room = -1
        for name, rows in (("placements", len(self.state.placed)), ("actions", len(self.state.actions))):
            if len(getattr(self._desk, name)) < rows:
                self._desk.replace(**{name: growth.grown(getattr(self._desk, name), rows)})

    # Time

    def step(self, now_s: float) -> p.Step:
        """Fold all events, decide, and say what to do."""
        if self._at_once:
            return self._step_at_once(now_s)
        self._begin(now_s)
        with _quiet():
            self._decide()
            if jit.CHECKED:
                validate_state(self.state)
            return self._results()

    @property
    def _at_once(self) -> bool:
        """Tell whether both halves of a step may be one call: the policy does not look at workflows between them."""
        return not self._sees_workflows and jit.COMPILED and not jit.CHECKED

    def _step_at_once(self, now_s: float) -> p.Step:
        self._enter(now_s)
        count = self._inbox.count
        if self._nodes.changed or self._timers + count > self._timer_room:
            self.prepare()
        self._inbox.count, self._told_last = 0, count
        run, told = self._kernels.run_step, (self._functions, now_s, count)
        while (status := run(self.state.handle(), self._desk.handle(), *told)) == stepping.GROW_EDGES:
            growth.double_edges(self.state)
        if status != stepping.OK:
            self._recover(status)
            self._decide()
        return self._results()

    def _enter(self, now_s: float) -> None:
        if self.state.busy:
            raise p.Busy("another thread is inside this engine; one at a time may step it")
        if not now_s >= self._now:  # so that NaN is refused too
            raise p.TimeWentBack(f"step({now_s!r}) after step({self._now!r}): time must not go back")
        self._now = now_s

    def step_on(self, policy: str | Policy) -> p.Step:
        """Finish, by another policy, a step that the one in use broke (`BrokenPolicy`); what is placed stays placed."""
        self.use(policy)
        with _quiet():
            self._decide()
            return self._results()

    def _recover(self, status: int) -> None:
        if status == stepping.BAD_COST:
            raise BrokenPolicy(f"policy {self.policy.name!r} returned NaN at {self._now:g} s")
        self._grow_attempts()

    def by_hand(self, rows: int = 256, joint: bool = False) -> CallerChoice:
        """Open steps in which the caller decides: what is ``wanted``, choice by choice."""
        return CallerChoice(self, rows, joint)

    def _begin(self, now_s: float) -> None:
        """Fold the events, the first half of a step."""
        self._enter(now_s)
        with _quiet():
            self.prepare()
            self._fold(now_s)
            if self._sees_workflows:
                self._note_places()

    def prepare(self) -> None:
        """Make room for this step's timers; a policy's notes of nodes, when they have changed."""
        state = self.state
        if self._nodes.changed:
            self._nodes.changed = False
            self._nodes.rules.freshen()
            self._places.nodes_changed()
            self._let_prepare()
            if self._places.missed and self._nodes.facts:
                self._order_again()
        self._make_timer_room(self._inbox.count + len(state.attempts) + len(state.nodes) + 65)
        self._timer_room = len(state.timers) - len(state.attempts) - len(state.nodes) - 65

    def _make_timer_room(self, more: int) -> None:
        wanted = int(self.state.counts["timer_n"][0]) + more + 1
        if wanted > len(self.state.timers):
            self.state.replace(timers=growth.grown(self.state.timers, 2 * wanted))

    def _fold(self, now_s: float) -> None:
        words = self._desk.words
        words["events"] = self._told_last = self._inbox.count
        self._inbox.count = 0
        fold = self._kernels.fold_events
        while fold(self.state.handle(), self._desk.handle(), self._functions, now_s) != stepping.OK:
            growth.double_edges(self.state)

    def _note_places(self) -> None:
        desk, words = self._desk, self._desk.words[0]
        changed, fresh = desk.changed[: int(words.changed)].tolist(), desk.fresh[: int(words.fresh)].tolist()
        if changed or fresh:
            self._places.note(self.policy, changed, fresh, self._add_lane)
            self.state.workflows.dirty[changed] = 0

    def _decide(self) -> None:
        while True:
            status = self._kernels.decide_all(self.state.handle(), self._desk.handle(), self._functions)
            if status == stepping.OK:
                return
            self._recover(status)

    def _grow_attempts(self) -> None:
        growth.grow_attempts(self.state, 2 * len(self.state.attempts))
        self._refresh()

    def _results(self) -> p.Step:
        made = self._desk
        _, _, _, placed, acted, rejected, _, _, _, ended_n, self._timers, wake_at = self._words.item()
        placements = list(map(p.Placement._make, made.placements[:placed].tolist())) if placed else []
        actions = [p.Action(p.Act(k), w, v) for k, w, v in made.actions[:acted].tolist()] if acted else []
        ended = [p.Ended(t, g, p.Outcome(o)) for t, g, o in self.state.ended[:ended_n].tolist()] if ended_n else []
        refused = [
            p.Rejected(Kind(k), w, p.REJECTIONS[r])
            for k, w, r in (made.rejected[:rejected].tolist() if rejected else [])
        ]
        if self._inbox.gone:
            self._remove_gone()
        if self._shapes.dropped:
            self._sweep()
        return p.Step(placements, actions, wake_at, ended, refused)

    def _remove_gone(self) -> None:
        for identity in dict.fromkeys(self._inbox.gone):
            row = p.row_of(identity)
            if (
                int(self._inbox.node_generation[row]) & p.GENERATION_MASK
                == (identity >> p.ROW_BITS) & p.GENERATION_MASK
            ):
                self._nodes.remove(row)
        self._inbox.gone.clear()

    # What is known

    def why(self, task: int) -> p.Why:
        """Tell why a task is not placed. No effects."""
        row = self._inbox.row(task, p.TASK_ID, self._inbox.task_generation)
        found = reasons.why(self.state, self._nodes, self._shapes, row, task)
        return replace(found, unplanned=self._places.unplanned.get(row, ""))

    def explain(self, task: int) -> list[p.Explained]:
        """List each candidate of a waiting task with its cost and the terms that sum to it, cheapest first. No effects.

        For a decision of the past: `wattflow.live.past_decision.explain_past`.
        """
        row = self._inbox.row(task, p.TASK_ID, self._inbox.task_generation)
        with _quiet():
            return reasons.explain(self.state, self.policy, self._functions, row, task)

    def describe(self, identity: int) -> dict[str, Any]:
        """Return the present facts of a node, task, attempt, shape or workflow, as plain data. No effects."""
        return reasons.describe(self.state, self._nodes, self._shapes, identity)

    @property
    def nodes(self) -> dict[str, int]:
        """Return ids of the nodes that are there, by name."""
        generations = self.state.node_marks.generation
        return {name: p.make_id(p.NODE_ID, row, int(generations[row])) for name, row in self._nodes.by_name.items()}

    @property
    def functions(self) -> dict[str, Function]:
        """Tell what is known of each function, by name."""
        return {function.name: function for function in self._shapes.functions}

    def function_name(self, number: int) -> str:
        """Return the function that a WARM action names."""
        return self._shapes.functions[number].name

    @property
    def counts(self) -> dict[str, int]:
        """Return counters: stale reports, decisions, scored candidates, and what waits, runs and is open."""
        row = self.state.counts[0]
        return {name: int(row[name]) for name in ("stale", "decisions", "scored", "waiting", "running", "open")}


def _quiet() -> contextlib.AbstractContextManager[Any]:
    """Keep numpy quiet where, uncompiled, the hashes of groups overflow as they should."""
    return contextlib.nullcontext() if jit.COMPILED else np.errstate(over="ignore")

"""A restart: the engine from its snapshot and the calls after it, the records from the tables."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from wattflow.live import Engine
from wattflow.live.protocol import Ended, Outcome
from wattflow.model.errors import InvalidInput
from wattflow.runtime import compaction
from wattflow.runtime import messages as m
from wattflow.runtime.compaction import take_snapshot
from wattflow.runtime.drivers.base import Sink
from wattflow.runtime.records import Broken
from wattflow.runtime.recovery import restore, wanted_objects
from wattflow.runtime.service import Service
from wattflow.server.tokens import Tokens
from wattflow.store import reads
from wattflow.store.journal import snapshots
from wattflow.store.objects import FolderObjects
from wattflow.store.schema import Row, open_store
from wattflow.store.statements import Write
from wattflow.store.writer import Writer


class Hand:
    """A driver that keeps what it is given; tests play the nodes."""

    name = "hand"
    queues = False

    def __init__(self) -> None:
        self.leases: list[m.Lease] = []
        self.resumed: list[m.Lease] = []
        self.nodes: list[str] = []
        self.cancelled: list[int] = []
        self.warmed: list[tuple[str, m.Warm]] = []

    async def start(self, sink: Sink) -> None:
        return None

    async def stop(self) -> None:
        return None

    def resume(self, nodes: Sequence[str], leases: Sequence[m.Lease]) -> None:
        self.nodes, self.resumed = list(nodes), list(leases)

    def launch(self, leases: Sequence[m.Lease]) -> None:
        self.leases += leases

    def cancel(self, fences: Sequence[int]) -> None:
        self.cancelled += fences

    def power(self, node: str, *, on: bool) -> None:
        return None

    def warm(self, node: str, order: m.Warm) -> None:
        self.warmed.append((node, order))


def task(key: str, *parents: str, **about: object) -> m.Task:
    return m.Task(key=key, name=key, command=["true"], parents=list(parents), **about)  # type: ignore[arg-type]


async def opened(folder: Path, policy: str = "fifo") -> tuple[Service, Hand, Writer]:
    database = open_store(folder / "s.db")
    writer, driver = Writer(database), Hand()
    service = restore(database, writer, driver, folder, policy)
    await service.start()
    return service, driver, writer


async def closed(service: Service, writer: Writer) -> None:
    await service.stop()
    writer.close()


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have snapshots made here: a process of its own takes two seconds to load."""

    async def elsewhere(wanted: str) -> str:
        given = json.loads(wanted)
        return compaction.write_snapshot(given["store"], Path(given["folder"]), given["sequence"], given["policy"])

    monkeypatch.setattr(compaction, "_elsewhere", elsewhere)


NODE = m.Node(name="n", cpus=2.0, memory_bytes=1 << 30)


def test_a_refusal_is_final_where_no_node_could_ever_run_the_task(tmp_path: Path) -> None:
    """A payload of another Python, submitted before any node was known: it is not tried six times."""

    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        spec = m.Task(key="a", name="a", function="a" * 64, call=m.Blob(data=b""), python="3.9")
        await service.submit(m.Submission(workflow="w", tasks=[spec], seal=True), "me")
        service.announce(replace(NODE, python="3.11"))
        await service.stored()
        service.ended(m.Ended(fence=driver.leases[0].fence, outcome="refused", reason="made by Python 3.9"))
        await service.stored()
        (outcome,) = (await service.outcomes("w", 0, 0)).outcomes
        assert (outcome.state, outcome.reason) == ("failed", "made by Python 3.9")
        await closed(service, writer)

    asyncio.run(body())


def test_ends_are_told_after_a_restart_as_they_were_before(tmp_path: Path) -> None:
    """With the reason of what failed, and none where a second try was done."""

    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        tasks = [task("again", retries=1), task("broken")]
        await service.submit(m.Submission(workflow="w", tasks=tasks), "me")
        service.announce(NODE)
        await service.stored()
        for lease in driver.leases[:2]:
            service.ended(m.Ended(fence=lease.fence, outcome="failed", reason="exit status 3"))
        await service.stored()
        service.ended(m.Ended(fence=driver.leases[2].fence, outcome="done"))
        await service.stored()
        before = (await service.outcomes("w", 0, 0)).outcomes
        assert {one.key: (one.state, one.reason) for one in before} == {
            "broken": ("failed", "exit status 3"), "again": ("done", None),
        }  # fmt: skip
        await closed(service, writer)
        service, _, writer = await opened(tmp_path)
        assert (await service.outcomes("w", 0, 0)).outcomes == before
        await closed(service, writer)

    asyncio.run(body())


def test_the_end_of_a_task_counts_once_and_that_of_one_nobody_knows_not_at_all(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        await service.submit(m.Submission(workflow="w", tasks=[task("a"), task("b")]), "me")
        service.announce(NODE)
        await service.stored()
        service.ended(m.Ended(fence=driver.leases[0].fence, outcome="done"))
        await service.stored()
        open_now = service.workflows["w"].open
        assert (open_now, service.tasks[driver.leases[0].task].state) == (1, "done")
        for tag in (driver.leases[0].task, 999):
            assert service._end_task(Ended(0, tag, Outcome.CANCELLED), 1.0) == []
        assert service.workflows["w"].open == open_now and service.tasks[driver.leases[0].task].state == "done"
        await closed(service, writer)

    asyncio.run(body())


@pytest.mark.parametrize("queues", [True, False, None])
def test_calls_are_sent_ahead_only_where_a_driver_says_that_its_nodes_queue(
    queues: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if queues is None:
        monkeypatch.delattr(Hand, "queues")  # a driver of another package, from before it could be said
    else:
        monkeypatch.setattr(Hand, "queues", queues)

    async def body() -> None:
        service, _, writer = await opened(tmp_path)
        assert service.learning.ahead.held_back == bool(queues)
        await closed(service, writer)

    asyncio.run(body())


def test_a_token_and_its_entry_in_the_audit_log_are_one_commit(tmp_path: Path) -> None:
    async def body() -> None:
        service, _, writer = await opened(tmp_path)
        groups: list[set[Write]] = []
        put = writer.put

        def noted(*rows: tuple[Write, Row]) -> None:
            groups.append({change for change, _ in rows})
            put(*rows)

        writer.put = noted  # type: ignore[method-assign]
        tokens = Tokens(open_store(tmp_path / "s.db"))
        _, row = tokens.draft("alice", "user")
        service.ledger.token(row)
        service.ledger.audit(service.now(), "boss", "token create", token=row["id"])
        await service.stored()
        service.ledger.token_revoked(str(row["digest"]), 1.0)
        service.ledger.audit(service.now(), "boss", "token revoke", tokens=[row["id"]])
        await service.stored()
        looked_for = {Write.TOKEN, Write.TOKEN_REVOKED, Write.AUDIT}
        together = [group & looked_for for group in groups if group & looked_for]
        assert together == [{Write.TOKEN, Write.AUDIT}, {Write.TOKEN_REVOKED, Write.AUDIT}]
        (known,) = Tokens(open_store(tmp_path / "s.db")).listed()
        assert (known.name, known.revoked_s) == ("alice", 1.0)
        await closed(service, writer)

    asyncio.run(body())


@pytest.mark.slow
@pytest.mark.parametrize("snapshot", [False, True])
def test_attempts_keep_their_ids_and_waiting_tasks_their_turn(tmp_path: Path, snapshot: bool) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        tasks = [task("a"), task("b"), task("c"), task("d", "a")]
        await service.submit(m.Submission(workflow="w", tasks=tasks, seal=True), "me")
        assert [lease.spec.key for lease in driver.leases] == ["a", "b"]
        if snapshot:
            await take_snapshot(service, open_store(tmp_path / "s.db"), tmp_path)
        fences = [lease.fence for lease in driver.leases]
        await closed(service, writer)

        again, second, writer = await opened(tmp_path)
        assert [lease.fence for lease in second.resumed] == fences
        again.ended(m.Ended(fence=fences[0], outcome="done"))
        again.ended(m.Ended(fence=fences[0], outcome="done"))
        await again.stored()
        assert [lease.spec.key for lease in second.leases] == ["c"]
        again.ended(m.Ended(fence=fences[1], outcome="failed", reason="broke"))
        await again.stored()
        assert [lease.spec.key for lease in second.leases] == ["c", "d"]
        for lease in second.leases:
            again.ended(m.Ended(fence=lease.fence, outcome="done"))
        await again.stored()
        outcomes = {o.key: o.state for o in (await again.outcomes("w", 0, 0)).outcomes}
        assert outcomes == {"a": "done", "b": "failed", "c": "done", "d": "done"}
        assert reads.workflow(open_store(tmp_path / "s.db"), "w")["state"] == "failed"  # type: ignore[index]
        await closed(again, writer)

    asyncio.run(body())


def test_a_lost_node_gives_its_tasks_back_and_its_orphans_change_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        await service.submit(m.Submission(workflow="w", tasks=[task("a")], seal=True), "me")
        (first,) = driver.leases
        service.gone("n", "silent")
        await service.stored()
        service.ended(m.Ended(fence=first.fence, outcome="done"))
        await service.stored()
        assert (await service.outcomes("w", 0, 0)).outcomes == []
        service.announce(NODE)
        await service.stored()
        second = driver.leases[-1]
        assert second.fence != first.fence and second.number == 2
        service.ended(m.Ended(fence=second.fence, outcome="done"))
        await service.stored()
        assert [o.state for o in (await service.outcomes("w", 0, 0)).outcomes] == ["done"]
        rows = reads.attempts(open_store(tmp_path / "s.db"), "w")
        assert [row["outcome"] for row in rows] == ["node_lost", "done"]
        await closed(service, writer)

    asyncio.run(body())


def test_submitting_again_changes_nothing_and_mistakes_are_all_told(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        submission = m.Submission(workflow="w", tasks=[task("a"), task("b", "a")])
        assert (await service.submit(submission, "me")).new == 2
        assert (await service.submit(submission, "me")).new == 0
        with pytest.raises(InvalidInput) as told:
            bad = [task("c", "nowhere"), m.Task(key="d", name="d"), task("c")]
            await service.submit(m.Submission(workflow="w", tasks=bad), "me")
        assert len(told.value.problems) == 3
        with pytest.raises(InvalidInput, match="somebody else"):
            await service.submit(submission, "you")
        assert driver.leases == [] and service.why(service.tasks[1])
        assert service.why(service.tasks[2]) == "it waits for a (waiting)"
        await closed(service, writer)

    asyncio.run(body())


def test_cancelling_reaches_running_and_waiting_tasks(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        await service.submit(m.Submission(workflow="w", tasks=[task("a"), task("b"), task("c")]), "me")
        assert await service.cancel("w") == 3
        assert sorted(driver.cancelled) == sorted(lease.fence for lease in driver.leases)
        for fence in driver.cancelled:
            service.ended(m.Ended(fence=fence, outcome="cancelled"))
        await service.stored()
        assert {o.state for o in (await service.outcomes("w", 0, 0)).outcomes} == {"cancelled"}
        assert service.workflows["w"].state == "cancelled"
        await closed(service, writer)

    asyncio.run(body())


def test_beyond_its_energy_budget_a_workflow_starts_nothing_more(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        tasks = [task(key) for key in "abcd"]
        await service.submit(m.Submission(workflow="w", tasks=tasks, seal=True, energy_budget_j=10.0), "me")
        first, second = driver.leases
        service.ended(m.Ended(fence=first.fence, outcome="done"))
        service.energy(m.TaskEnergy(first.fence, m.Energy(11.0, 9.0, 12.0, "modelled")))
        await service.stored()
        await service.stored()
        service.ended(m.Ended(fence=second.fence, outcome="done"))
        for lease in driver.leases[2:]:
            service.ended(m.Ended(fence=lease.fence, outcome="done"))
        await service.stored()
        outcomes = {o.key: o for o in (await service.outcomes("w", 0, 0)).outcomes}
        cancelled = [outcome for outcome in outcomes.values() if outcome.state == "cancelled"]
        assert cancelled and all("budget" in (outcome.reason or "") for outcome in cancelled)
        assert outcomes["a"].state == outcomes["b"].state == "done"
        await closed(service, writer)

    asyncio.run(body())


def test_what_was_kept_long_enough_is_forgotten(tmp_path: Path) -> None:
    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        await service.submit(m.Submission(workflow="w", tasks=[task("a")], seal=True), "me")
        service.log(driver.leases[0].fence, 0, b"out")
        service.ended(m.Ended(fence=driver.leases[0].fence, outcome="done"))
        await service.stored()
        await closed(service, writer)

    asyncio.run(body())
    database = open_store(tmp_path / "s.db")
    assert list(reads.expire(database, 0.0)) == [] and len(reads.workflows(database)) == 1
    assert list(reads.expire(database, 1e12)) == [[(1, 1)]]
    assert reads.workflows(database) == [] and reads.tasks(database, "w") == []


def test_a_start_under_another_policy_goes_on_from_what_the_first_decided(tmp_path: Path) -> None:
    """The journal was made under one policy: replaying it under another would give other attempts."""

    async def body() -> None:
        service, driver, writer = await opened(tmp_path, "sjf")
        long, short = task("long", estimate_s=100.0), task("short", estimate_s=1.0)
        await service.submit(m.Submission(workflow="w", tasks=[long, short], seal=True), "me")
        service.announce(m.Node(name="n", cpus=1.0, memory_bytes=1 << 30))
        await service.stored()
        assert [lease.spec.key for lease in driver.leases] == ["short"]
        await closed(service, writer)

        again, second, writer = await opened(tmp_path, "fifo")
        assert again.decider.policy == "sjf"  # work is open under it
        await again.submit(m.Submission(workflow="other", tasks=[], seal=True), "me")
        assert again.decider.policy == "sjf"  # and stays so when more comes
        (lease,) = second.resumed
        again.ended(m.Ended(fence=lease.fence, outcome="done"))
        await again.stored()
        assert [lease.spec.key for lease in second.leases] == ["long"]
        await closed(again, writer)

    asyncio.run(body())


def test_thousands_of_placements_are_made_in_pieces_and_a_loss_between_loses_none(tmp_path: Path) -> None:
    async def body() -> None:
        service, _, writer = await opened(tmp_path)
        tasks = [task(f"t{n}") for n in range(300)]
        await service.submit(m.Submission(workflow="w", tasks=tasks, seal=True), "me")
        service.announce(m.Node(name="big", cpus=400.0, memory_bytes=1 << 40))
        while service.turns.under_way is None:
            await asyncio.sleep(0)
        assert len(service.attempts) < 300
        service.gone("big", "pulled out")
        await service.stored()
        assert service.turns.under_way is None and not service.attempts
        service.announce(m.Node(name="big", cpus=400.0, memory_bytes=1 << 40))
        await service.stored()
        await service.stored()
        assert len(service.attempts) == 300
        await closed(service, writer)
        again, second, writer = await opened(tmp_path)
        assert len(second.resumed) == 300
        await closed(again, writer)

    asyncio.run(body())


def test_objects_that_no_task_names_are_swept_away_when_they_are_old(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path / "objects")
    function, call, orphan = (objects.put(text) for text in (b"function", b"call", b"orphan"))

    async def body() -> None:
        service, _, writer = await opened(tmp_path)
        spec = m.Task(key="a", name="a", function=function, call=m.Blob(object=call), python="3.11")
        await service.submit(m.Submission(workflow="w", tasks=[spec]), "me")
        await closed(service, writer)

    asyncio.run(body())
    database = open_store(tmp_path / "s.db")
    assert wanted_objects(database) == {function, call}
    assert objects.sweep(0.0, lambda: set()) == 0
    assert objects.sweep(1e12, lambda: wanted_objects(database)) == 1
    assert objects.has(function) and objects.has(call) and not objects.has(orphan)


def test_a_snapshot_that_fails_leaves_the_journal_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> subprocess.Popen[str]:
        pipe, command = subprocess.PIPE, [sys.executable, "-c", "import sys; sys.exit('no room')"]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    monkeypatch.setattr(compaction, "_process", broken)

    async def body() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        await service.submit(m.Submission(workflow="w", tasks=[task("a")], seal=True), "me")
        database = open_store(tmp_path / "s.db")
        with pytest.raises(OSError, match="no room"):
            await take_snapshot(service, database, tmp_path)
        assert not snapshots(database) and list(reads.journal(database, 0))
        await closed(service, writer)
        again, second, writer = await opened(tmp_path)
        assert [lease.fence for lease in second.resumed] == [lease.fence for lease in driver.leases]
        await closed(again, writer)

    asyncio.run(body())


def test_a_turn_that_fails_is_told_to_everybody_and_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    async def fails() -> None:
        service, _, writer = await opened(tmp_path)
        ended: list[str] = []
        service.on_fault = lambda: ended.append("once")
        await service.submit(m.Submission(workflow="w", tasks=[task("a")]), "me")
        waits = asyncio.create_task(service.outcomes("w", 0, 600.0))
        await asyncio.sleep(0)

        def broken(engine: Engine, now_s: float) -> None:
            raise ValueError(f"no cost at {now_s >= 0}")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Engine, "step", broken)
            with pytest.raises(Broken, match=r"cannot go on under fifo: .*ValueError: no cost at True"):
                await asyncio.wait_for(
                    service.submit(m.Submission(workflow="w", tasks=[task("b")], seal=True), "me"), 60
                )
            with pytest.raises(Broken, match="no cost"):
                await asyncio.wait_for(waits, 60)
            for late in (
                service.outcomes("w", 0, 600.0),
                service.submit(m.Submission(workflow="v", tasks=[task("c")]), "me"),
            ):
                with pytest.raises(Broken, match="no cost"):
                    await asyncio.wait_for(late, 60)
            assert ended == ["once"]
        await closed(service, writer)

    async def goes_on() -> None:
        service, driver, writer = await opened(tmp_path)
        service.announce(NODE)
        await service.submit(m.Submission(workflow="w", tasks=[task("b")], seal=True), "me")
        assert sorted(lease.spec.key for lease in driver.leases) == ["a", "b"]
        await closed(service, writer)

    asyncio.run(fails())
    asyncio.run(goes_on())

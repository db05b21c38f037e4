"""The shield on a live engine: asked in another process, it holds nothing up and is told what was seen."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest

from wattflow.clusters import load_cluster
from wattflow.live import Engine, Kind, Placement, shielding
from wattflow.live.recent_workflows import ArrivedNews, ArrivedWindow
from wattflow.live.shielding import Answer, Remembered, Shielding, adviser
from wattflow.model.workflow import Variant
from wattflow.plan.shield import Shield
from wattflow.policy import registry
from wattflow.policy.base import Policy, Seen
from wattflow.policy.portfolio import PORTFOLIO, REFERENCE, SLEEPY

POLICY = "wattflow:shield=kubernetes"
SAVER = shielding.typed(PORTFOLIO.with_params(rule=1.0, after_s=600.0))
NOTE: dict[str, object] = {
    "at_s": 60.0, "workflows": 4, "chosen": "saver", "dials": "rule=1", "why": "of joules", "late": -0.1, "tail": 0.9,
    "latest": [],
}  # fmt: skip


class Asked(ThreadPoolExecutor):
    """Answers at once with what it is told to, and keeps what it was asked."""

    def __init__(self, *answers: object) -> None:
        super().__init__(1)
        self.answers, self.seen, self.more = list(answers), list[Seen](), list[tuple[object, ...]]()
        self.told, self.window = list[ArrivedNews](), ArrivedWindow()

    def submit(self, work: object, policy: str, now_s: float, told_of: ArrivedNews, *more: object) -> Future[object]:  # type: ignore[override]
        self.told.append(told_of)
        self.seen.append(self.window.take(told_of))
        self.more.append(more)
        answer: Future[object] = Future()
        told = self.answers.pop(0)
        if isinstance(told, Exception):
            answer.set_exception(told)
        else:
            answer.set_result(told)
        return answer


@pytest.fixture
def engine() -> Engine:
    return Engine(POLICY, cluster=load_cluster("mixed"))


def step(engine: Engine, twin: Shielding, now_s: float, chosen: list[Policy | None]) -> list[Placement]:
    """One step; what it placed. The shield is asked after it."""
    made = engine.step(now_s)
    twin.note(engine, now_s, made)
    chosen.append(twin.consider(engine, now_s))
    return list(made.placements)


def play(engine: Engine, twin: Shielding, flows: int, first_s: float = 0.0) -> list[str]:
    """Workflows of two tasks one after another, each ended after ten seconds; policies that were chosen."""
    shape, chosen = engine.shape((Variant(cores=1),)), list[Policy | None]()
    for number in range(flows):
        now_s = first_s + 20.0 * number
        flow = engine.workflow()
        for _ in range(2):
            engine.put(Kind.TASK, shape, workflow=flow, estimate_s=10.0)
        engine.put(Kind.SEAL, flow)
        placements = step(engine, twin, now_s, chosen)
        for placement in placements:
            engine.put(Kind.STARTED, placement.attempt)
        step(engine, twin, now_s, chosen)
        for placement in placements:
            engine.put(Kind.FINISHED, placement.attempt)
        step(engine, twin, now_s + 10.0, chosen)
    return [one.name for one in chosen if one is not None]


def test_it_is_asked_every_few_arrivals_and_told_what_ended(engine: Engine) -> None:
    here = Asked(Answer(SAVER, [NOTE], 0.0), Answer(SAVER, [], 0.0))
    twin = Shielding(POLICY, here)
    assert play(engine, twin, 4) == [SAVER] and twin.notes == [NOTE]
    seen = here.seen[0]
    assert len(seen.flows) == 4 and seen.number == 0
    assert [len(flow) for flow in seen.flows] == [2] * 4
    assert seen.end_s[:3].tolist() == [10.0, 30.0, 50.0] and np.isnan(seen.end_s[3])
    speed = np.array([runtime_s / 10.0 for runtime_s in seen.runtime_s[:3]])
    assert np.isfinite(speed).all() and np.isnan(seen.runtime_s[3]).all()


def test_it_takes_a_share_of_a_core(engine: Engine) -> None:
    here = Asked(Answer(SAVER, [], 20.0), Answer(SAVER, [], 0.0))
    twin = Shielding(POLICY, here)
    play(engine, twin, 4)
    play(engine, twin, 6, first_s=100.0)  # answered at 60 s, and it took 20 s: not before 60 + 20 / 5 %
    assert len(here.seen) == 1
    play(engine, twin, 1, first_s=60.0 + 20.0 / shielding.SHARE)
    assert len(here.seen) == 2


def test_a_busy_process_holds_nothing_up(engine: Engine) -> None:
    class Never(ThreadPoolExecutor):
        def submit(self, *args: object, **fields: object) -> Future[object]:  # type: ignore[override]
            return Future()

    assert play(engine, Shielding(POLICY, Never(1)), 8) == []


@pytest.mark.parametrize("error", [BrokenProcessPool("gone"), ValueError("a bug")])
def test_a_shield_that_fails_leaves_the_reference(engine: Engine, error: Exception) -> None:
    here = Asked(Answer(SAVER, [], 0.0), error)
    twin = Shielding(POLICY, here)
    for name in play(engine, twin, 4):
        engine.use(registry.load(name))
    chosen = play(engine, twin, 5, first_s=200.0)
    assert chosen == [shielding.typed(registry.load(POLICY).with_params(**REFERENCE))]
    assert registry.load(chosen[0]).params["after_s"] == REFERENCE["after_s"]
    assert registry.load(POLICY).params["after_s"] == SLEEPY["after_s"], "a stream begins otherwise"


def test_a_choice_is_typed_and_read_again() -> None:
    some = PORTFOLIO.with_params(rule=2.0, tolerance=0.1, after_s=30.0, rest_s=170.0)
    assert registry.load(shielding.typed(some)).params == some.params
    reference = PORTFOLIO.with_params(**REFERENCE)
    assert registry.load(shielding.typed(reference)).params == reference.params


def test_the_shield_itself_answers_with_the_reference_while_little_is_known(engine: Engine) -> None:
    shielding._shields.clear()
    here = Asked(Answer(SAVER, [], 0.0))
    play(engine, Shielding(POLICY, here), 4)
    told = shielding.advise(POLICY, 70.0, here.told[0], engine.cluster, [[10.0, 9.0]], engine.policy.settings)
    assert registry.load(told.chosen).params["after_s"] == REFERENCE["after_s"] and told.took_s > 0
    assert [note["chosen"] for note in told.notes] == ["reference"]
    assert told.rows[0] == [10.0, 9.0] and len(told.rows) == 4, "the ledger of before, and what has ended since"
    assert told.summary["judged"] == 4


def test_any_policy_is_put_aside_and_back_by_its_name() -> None:
    """As in a simulation: its rules are exchanged for the reference's, and again when the budget allows."""
    shielding._shields.clear()
    text = "least-energy:shield=kubernetes"
    engine = Engine(text, cluster=load_cluster("mixed"))

    class Here(ThreadPoolExecutor):
        def submit(self, work: object, *told: object) -> Future[object]:  # type: ignore[override]
            answer: Future[object] = Future()
            answer.set_result(shielding.advise(*told))  # type: ignore[arg-type]
            return answer

    late: list[list[float]] = [[11.0, 10.0]] * 100
    shield = Shielding(text, Here(1), Remembered(late))
    chosen = play(engine, shield, 4)
    assert chosen == [shielding.typed(PORTFOLIO.with_params(**REFERENCE))]
    engine.use(registry.load(chosen[0]))
    for row in range(4, 99):  # what was late is won back
        shielding._shields[text].ledger.note(row, 1.0, 40.0)
    engine.step(1e6)  # workflows count from the step before them
    assert play(engine, shield, 5, first_s=1e6) == [text]
    engine.use(registry.load(text))
    assert engine.policy.score is registry.load("least-energy").score
    engine.step(2e6)
    assert play(engine, shield, 4, first_s=2e6) == [], "it is used already"
    assert shield.remembered.summary["saved"] is None
    shielding._shields.clear()


def test_a_race_offers_what_the_engine_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Kubernetes no request may be cut and no clock set; races counted on both."""
    shielding._shields.clear()
    whole = registry.load(POLICY).with_settings(guarantees=(1.0,), frequencies=(0,))
    engine = Engine(whole, cluster=load_cluster("mixed"))
    here = Asked(Answer(SAVER, [], 0.0))
    play(engine, Shielding(POLICY, here), 4)
    cluster, before, settings = here.more[0]
    raced: list[Policy] = []
    monkeypatch.setattr(Shield, "consider", lambda shield, now_s, seen: raced.append(shield.choice))
    shielding.advise(POLICY, 70.0, here.told[0], cluster, before, settings)  # type: ignore[arg-type]
    assert [(one.settings.guarantees, one.settings.frequencies) for one in raced] == [((1.0,), (0,))]
    shielding._shields.clear()


def test_what_an_answer_tells_is_remembered_and_told_once(engine: Engine) -> None:
    rows: list[list[float]] = [[10.0, 9.0]]
    summary: dict[str, object] = {"kept": True}
    here = Asked(Answer(SAVER, [NOTE], 0.5, rows, summary), Answer(SAVER, [], 0.25, rows, summary))
    twin = Shielding(POLICY, here, Remembered(processor_s=1.0))
    assert twin.news() is None
    play(engine, twin, 4)
    assert twin.news() == Remembered(rows, summary, NOTE, 1.5) and twin.news() is None
    play(engine, twin, 4, first_s=100.0)
    assert twin.remembered == Remembered(rows, summary, NOTE, 1.75)


def test_who_advises_is_told_by_the_policy() -> None:
    assert isinstance(adviser(POLICY), Shielding) and isinstance(adviser("rehearsed"), Shielding)
    assert adviser("wattflow:shield=none") is None and adviser("kubernetes") is None


def test_closing_drops_what_was_asked_and_waits_for_nobody(engine: Engine) -> None:
    told: list[dict[str, bool]] = []

    class Noted(Asked):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            told.append({"wait": wait, "cancel_futures": cancel_futures})

    twin = Shielding(POLICY, Noted())
    twin.close()
    twin.close()
    assert told == [{"wait": False, "cancel_futures": True}]


def test_a_workflow_is_told_once_and_all_of_them_again_after_a_failure(engine: Engine) -> None:
    """A look hands over what is new; it was the whole window each time."""
    answers: list[object] = [Answer(SAVER, [], 0.0) for _ in range(5)]
    here = Asked(*answers[:2], ValueError("a bug"), *answers[3:])
    twin = Shielding(POLICY, here)
    for number in range(4):
        play(engine, twin, 5, first_s=1000.0 * number)
    told = [(one.anew, len(one.came), len(one.times)) for one in here.told]
    assert told == [(True, 4, 4), (False, 4, 5), (False, 4, 5), (True, 16, 16), (False, 4, 5)]
    assert [len(seen.flows) for seen in here.seen] == [4, 8, 12, 16, 20]
    assert np.isfinite(here.seen[1].end_s[:7]).all() and here.seen[3].number == 0
    clusters = [cluster for cluster, *_ in here.more]
    assert clusters[0] == clusters[3] == engine.cluster and clusters[1] is clusters[2] is None, "told when it changed"


def test_a_process_that_knows_nothing_says_so() -> None:
    shielding._shields.clear()
    with pytest.raises(AssertionError):
        shielding.advise(POLICY, 0.0, ArrivedNews(0, 0, {}, {}, False), None, [], PORTFOLIO.settings)


_KEEPER = """
import os, time
from wattflow.live.shielding import Shielding

if __name__ == "__main__":
    pool = Shielding._process(type("Bare", (), {"_executor": None})())
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(60)
"""


def test_its_process_ends_with_a_server_that_was_killed(tmp_path: Path) -> None:
    """A worker of a pool holds both ends of its queue: without its parent it would wait for ever."""
    (tmp_path / "keeper.py").write_text(_KEEPER, encoding="utf-8")
    with subprocess.Popen([sys.executable, tmp_path / "keeper.py"], stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        advising = int(keeper.stdout.readline())
        keeper.kill()
    end = time.monotonic() + 30
    while is_alive(advising):
        assert time.monotonic() < end, "the shield's process outlives its server"
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    """Tell whether a process runs: one that nobody has collected yet has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False

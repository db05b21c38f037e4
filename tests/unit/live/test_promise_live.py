"""What `bench-promise --live` measures: twins that decide alike, one of them shielded, and a load that doubles."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from wattflow.live import shielding

ROOT = Path(__file__).parents[3]


@pytest.fixture
def promise_live(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import promise_live

    return promise_live


class Here(ThreadPoolExecutor):
    """Answers at once, in this process."""

    def submit(self, work: object, *told: object) -> Future[object]:  # type: ignore[override]
        answer: Future[object] = Future()
        answer.set_result(shielding.advise(*told))  # type: ignore[arg-type]
        return answer


def test_a_doubled_load_is_answered_and_twins_decide_alike(
    promise_live: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    shielding._shields.clear()
    monkeypatch.setattr(promise_live, "Shielding", lambda policy: shielding.Shielding(policy, Here(1)))
    ground = promise_live.Ground("fork-join:tasks=24,mean=90s", 0.25, 20, 24)
    player = promise_live.Player(0, 1e9, ground)
    run = player.play()
    assert player.arrived == 44 and len(run.with_s) == len(run.without_s) > 44 * 24
    assert sum(run.with_s) > sum(run.without_s) > 0.0 < run.cpu and len(run.steps_s[0]) == len(run.with_s)
    assert 0 < run.answered <= 24
    ours, twin = player._twins.ours.engine, player._twins.twin.engine
    assert ours.counts == twin.counts and not ours.counts["open"]
    shielding._shields.clear()


def test_figures_are_of_all_seeds_and_the_worst_answer(promise_live: ModuleType) -> None:
    runs = [promise_live.Played([1e-3] * 10, [5e-4] * 10, cpu, after) for cpu, after in ((0.01, 8.0), (0.03, 12.0))]
    assert promise_live.figures(runs) == {
        "live_cpu_of_a_core": pytest.approx(3.0), "live_p99_of_a_decision": pytest.approx(2.0),
        "live_doubled_load_answered": 12.0,
    }  # fmt: skip

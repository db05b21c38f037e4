"""The one contract of who runs: here and processes give the same, errors come back, deaths are made good or told."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from wattflow.lab.run.crews import crew_for
from wattflow.model.errors import InvalidInput, WattflowError


@dataclass(frozen=True)
class Squares:
    """Squares numbers; some are refused, some end their process."""

    refused: frozenset[int] = frozenset()
    deadly: frozenset[int] = frozenset()

    def ready(self) -> Callable[[int], int]:
        return self._square

    def _square(self, piece: int) -> int:
        if piece in self.refused:
            raise InvalidInput(f"number {piece}", "is refused")
        if piece in self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return piece * piece

    def compiled(self) -> bool:
        return True

    def warm_up(self) -> None:
        return None

    def key(self, piece: int) -> str:
        return str(piece)

    def title(self, piece: int) -> str:
        return f"number {piece}"

    def load(self, piece: int) -> int:
        return piece % 3

    def failed(self, piece: int, error: Exception) -> int:
        if piece % 2:
            raise error
        return -1


@pytest.fixture(autouse=True)
def _leaves_no_process() -> Iterator[None]:
    before = multiprocessing.active_children()
    yield
    assert not set(multiprocessing.active_children()) - set(before)


def squares(work: Squares, pieces: list[int], workers: int) -> dict[int, int]:
    found: dict[int, int] = {}
    with crew_for(work, workers) as crew:
        crew.run(pieces, lambda piece, answer: found.update({piece: answer}), lambda text: None)
        crew.run([100], lambda piece, answer: found.update({piece: answer}), lambda text: None)
    return found


def test_processes_give_what_this_one_gives() -> None:
    alone = squares(Squares(), list(range(12)), 1)
    assert alone == {n: n * n for n in (*range(12), 100)}
    assert squares(Squares(), list(range(12)), 2) == alone


def test_modules_of_the_users_folder_do_not_stand_for_pythons_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("copy", "types", "queue", "random"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(tmp_path)
    assert squares(Squares(), [3], 2)[3] == 9
    assert "PYTHONSAFEPATH" not in os.environ


def test_an_error_elsewhere_comes_back_as_it_was() -> None:
    work = Squares(refused=frozenset({3}))
    with pytest.raises(InvalidInput, match="number 3: is refused") as error:
        squares(work, [1, 3], 2)
    assert "_square" in "".join(error.value.__notes__)


def test_a_piece_that_ends_its_process_again_and_again_is_given_up() -> None:
    assert squares(Squares(deadly=frozenset({4})), [2, 4, 6], 2) == {2: 4, 4: -1, 6: 36, 100: 10_000}
    with pytest.raises(WattflowError, match="3 times"):
        squares(Squares(deadly=frozenset({5})), [5], 2)


def test_the_wait_hears_an_interrupt_and_ends_all() -> None:
    def wait(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), crew_for(Squares(), 2) as crew:
        crew.run([1, 2, 3], lambda piece, answer: None, wait)


@pytest.mark.slow
def test_a_script_without_a_guard_is_run_once(tmp_path: Path) -> None:
    """Spawned processes would run it again, and end with the error of those who start processes meanwhile."""
    script = tmp_path / "script.py"
    script.write_text(
        "import wattflow as wf\nprint('once')\n"
        "some = wf.Recipe('bag', tasks=3)\n"
        "found = wf.compare(some, 'hpe', ['fifo', 'random'], 12, 'random', wf.Setup(workers=2))\n"
        "print(len(found.points))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "once\n24\n"), done.stderr

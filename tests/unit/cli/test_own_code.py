"""Faults of a user's own policy, and extras that are not installed: one message each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from wattflow.model.errors import own_fault

HEAD = "from wattflow.policy import policy\n\n\n"
POLICIES = {
    "raises": ('@policy("own", compiled=False)\ndef own(state, task, variant, out):\n    out[:] = 1 / 0\n',
               "own.py, line 6: ZeroDivisionError: division by zero"),
    "nameless": ('@policy("own")\ndef own(state, task, variant, out):\n    out[0] = nowhere(task)\n',
                 "own.py, line 6: does not compile: NameError: name 'nowhere' is not defined"),
    "unknown": ('from wattflow.policy import view\n\n\n@policy("own")\ndef own(state, task, variant, out):\n'
                "    out[0] = view.nope(state)\n",
                "own.py, line 9: AttributeError: module 'wattflow.policy.view' has no attribute 'nope'"),
    "import": ("import no_such_module_at_all\n", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
    "top": ("known = {}\nknown['k']\n", "KeyError: 'k' (own.py, line 5)"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", POLICIES)
def test_a_policy_that_fails_is_one_message_with_its_own_line(kind: str, tmp_path: Path) -> None:
    text, said = POLICIES[kind]
    (tmp_path / "own.py").write_text(HEAD + text)
    command = [sys.executable, "-m", "wattflow.cli", "simulate", "chain:tasks=3", "-c", "mixed", "-p", "own.py:own"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 3


def test_what_numba_says_is_cut_to_its_reason() -> None:
    from numba.core.errors import TypingError

    class Loc:
        filename, line = __file__, 7

    error = TypingError(
        "Failed in nopython mode pipeline (step: x)\nNo implementation of function add:\n >>> add(f8, str)"
    )
    error.loc = Loc  # type: ignore[attr-defined]
    told = own_fault(error)
    assert told is not None
    assert told.endswith("test_own_code.py, line 7: does not compile: No implementation of function add: add(f8, str)")


def test_an_error_of_our_own_code_is_not_the_users() -> None:
    from wattflow.model import units

    try:
        units.duration_s("no time at all")
    except ValueError as error:
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        assert own_fault(error) is None


BLOCKED = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import wattflow
try:
    wattflow.Client()
except wattflow.WattflowError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("missing", ["msgspec", "cloudpickle"])
def test_a_client_without_its_extra_says_which(missing: str) -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED.format(blocked=(missing,))], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.stdout == f"MissingExtra wattflow.Client needs {missing}: pip install 'wattflow[run]'\n", done.stderr


@pytest.mark.parametrize("missing", ["aiohttp", "cloudpickle", "fastapi", "msgspec", "sqlalchemy", "uvicorn"])
def test_up_without_its_extra_says_which(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wattflow.cli import live
    from wattflow.model.errors import MissingExtra

    monkeypatch.setattr(live, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(MissingExtra, match=rf"needs {missing}: pip install 'wattflow\[run\]'"):
        live.home_of(tmp_path)

"""Calls and failures as bytes: what travels by value, and exceptions that do not like to travel."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import cloudpickle
import pytest

from wattflow.runtime.executors import zygote
from wattflow.runtime.payload import RemoteTraceback, TaskEnergy, TaskFailed, dump_call, dump_function, load_failure


class TwoArguments(Exception):
    def __init__(self, path: str, line: int) -> None:
        super().__init__(f"{path}:{line}")
        self.path, self.line = path, line


class KeywordOnly(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__()
        self.code = code


class HoldsALock(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class Unshowable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class RefusesToTravel(Exception):
    def __reduce__(self) -> str:
        raise TypeError("not me")


def fail(error: BaseException) -> BaseException:
    """An exception as the client gets it, by way of a child's answer."""
    try:
        raise error
    except BaseException as raised:
        answer, data = zygote._failed(raised)
    assert answer["ok"] is False and "\0" not in answer["reason"]
    answer["reason"].encode()
    return load_failure(data, answer["reason"])


def test_exceptions_arrive_whatever_their_constructor_wants() -> None:
    two = fail(TwoArguments("a.txt", 3))
    assert isinstance(two, TwoArguments) and (two.path, two.line, str(two)) == ("a.txt", 3, "a.txt:3")
    keyword = fail(KeywordOnly(code=7))
    assert isinstance(keyword, KeywordOnly) and keyword.code == 7
    lock = fail(HoldsALock("busy"))
    assert isinstance(lock, HoldsALock) and lock.args == ("busy",)
    plain = fail(FileNotFoundError(2, "no such file", "x"))
    assert isinstance(plain, FileNotFoundError) and plain.filename == "x"


@pytest.mark.parametrize("error", [Unshowable(), RefusesToTravel("x"), ValueError(threading.Lock())])
def test_what_cannot_travel_still_arrives_as_something(error: Exception) -> None:
    told = fail(error)
    assert isinstance(told, (type(error), TaskFailed)) and type(error).__name__ in str(told.__cause__)


@pytest.mark.parametrize("text", ["a \udcff name", "zero \0 byte", "\ud800", "\x1b[31m red"])
def test_texts_that_no_store_takes_are_written_out(text: str) -> None:
    told = fail(OSError(text))
    assert isinstance(told, OSError) and told.args == (text,)
    assert isinstance(told.__cause__, RemoteTraceback)
    str(told.__cause__).encode()


def test_the_remote_traceback_is_the_cause() -> None:
    def inner() -> None:
        raise RuntimeError("deep")  # here it was

    try:
        inner()
    except RuntimeError as error:
        told = load_failure(zygote._failed(error)[1], "RuntimeError: deep")
    assert isinstance(told.__cause__, RemoteTraceback) and "here it was" in str(told.__cause__)


@pytest.mark.parametrize("data", [None, b"", b"no pickle", pickle.dumps(5), pickle.dumps({"error": b"x", "trace": ""})])
def test_failures_without_an_exception_carry_their_reason(data: bytes | None) -> None:
    told = load_failure(data, "ran longer than its 5 s")
    assert isinstance(told, TaskFailed) and str(told) == "ran longer than its 5 s"


def test_an_exception_of_an_older_store_is_itself() -> None:
    assert isinstance(load_failure(pickle.dumps(KeyError("k")), "KeyError"), KeyError)


@pytest.fixture
def beside(tmp_path: Path) -> ModuleType:
    """A module of the user's, beside their script."""
    (tmp_path / "beside_the_script.py").write_text(
        "LOUD = 2\nclass Point:\n    def __init__(self, x):\n        self.x = x\n"
        "def shout(text):\n    return inner(text) + '!' * LOUD\n"
        "def inner(text):\n    return text.upper()\n"
    )
    spec = importlib.util.spec_from_file_location("beside_the_script", tmp_path / "beside_the_script.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["beside_the_script"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_functions_and_arguments_of_a_module_beside_the_script_travel_by_value(
    beside: ModuleType, tmp_path: Path
) -> None:
    call, _ = dump_call((beside.Point(4),), {}, Path)
    (tmp_path / "payload").write_bytes(pickle.dumps((dump_function(beside.shout), call)))
    there = (
        "import pickle, sys\n"
        f"function, call = map(pickle.loads, pickle.loads(open({str(tmp_path / 'payload')!r}, 'rb').read()))\n"
        "assert 'beside_the_script' not in sys.modules\n"
        "print(function('a'), call[0][0].x)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", there], capture_output=True, text=True, check=False)
    assert done.stdout == "A!! 4\n", done.stderr
    assert "beside_the_script" not in cloudpickle.list_registry_pickle_by_value()  # other users of it are left alone


def test_a_module_that_holds_what_cannot_travel_is_sent_by_name(beside: ModuleType) -> None:
    beside.lock = threading.Lock()  # type: ignore[attr-defined]
    uses = eval("lambda: beside.inner('a')", {"beside": beside})
    assert b"beside_the_script" in dump_function(uses) and pickle.loads(dump_function(uses))() == "A"
    with pytest.raises(TypeError, match="lock"):
        dump_call((beside.lock,), {}, Path)


def test_a_wide_band_is_told_beside_the_joules_and_no_cause_of_it() -> None:
    assert "short" not in str(TaskEnergy(9.0, 0.0, 296.0, "attributed", 1)), "a sleep of eight seconds is as unsure"
    assert str(TaskEnergy(0.05, 0.03, 5.3, "modelled", 1)) == "0.05 J, up to 5.3 J (0.03 to 5.3 J, modelled)"
    assert str(TaskEnergy(0.0, 0.0, 0.0, "modelled", 1)) == "0 J, seen by no meter (0 to 0 J, modelled)"
    assert str(TaskEnergy(10.0, 9.0, 12.0, "measured", 1)).startswith("10")

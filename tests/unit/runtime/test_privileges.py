"""Tasks are kept apart: from the agent, from its secrets and from other users' tasks."""

from __future__ import annotations

import asyncio
import builtins
import functools
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from wattflow.model.errors import InvalidInput
from wattflow.runtime.executors import privileges
from wattflow.runtime.executors.forking import Zygote
from wattflow.runtime.executors.limits import ControlGroups
from wattflow.runtime.executors.privileges import FIRST_UID, LAST_UID, Privileges, choose
from wattflow.runtime.executors.process import AttemptWork, Finish, ProcessExecutor

SYSTEM = "/usr/bin/python3"
"""A Python that every user may run."""
users = pytest.mark.skipif(
    os.geteuid() != 0 or not Path(SYSTEM).exists(), reason="needs root and a Python of the system's"
)


@functools.cache
def version(python: str) -> str:
    command = [python, "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def call(fence: int, owner: str, function: Callable[..., Any], *args: object, **about: Any) -> AttemptWork:
    blobs = (pickle.dumps(function), pickle.dumps((args, {})))
    made_by = version(about.pop("python", sys.executable))
    return AttemptWork(fence=fence, owner=owner, python=made_by, function=str(blobs[0]), blobs=blobs, **about)


system_call = functools.partial(call, python=SYSTEM)


def value(finish: Finish) -> Any:
    assert finish.outcome == "done", finish
    assert finish.result is not None
    return pickle.loads(finish.result)


def on_executor(
    body: Callable[[ProcessExecutor], Coroutine[Any, Any, None]],
    zygote: Callable[[], Zygote],
    groups: ControlGroups | None = None,
) -> None:
    async def main() -> None:
        executor = ProcessExecutor(zygote(), workers=2, groups=groups)
        await executor.start()
        try:
            await body(executor)
        finally:
            await executor.close()

    asyncio.run(main())


def test_tasks_get_a_clean_environment_and_can_gain_no_privileges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("WATTFLOW_STORE", "postgresql://me:secret@host/db")
    monkeypatch.setenv("WANTED", "yes")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")

    async def body(executor: ProcessExecutor) -> None:
        seen = value(await executor.run(call(1, "alice", eval, "dict(__import__('os').environ)")))
        assert "secret" not in str(seen) and seen["OMP_NUM_THREADS"] == "3" and seen["WANTED"] == "yes"
        status = value(await executor.run(call(2, "alice", eval, "open('/proc/self/status').read()")))
        assert "NoNewPrivs:\t1" in status
        log: list[bytes] = []
        command = AttemptWork(fence=3, owner="alice", command=["env"], environment={"OWN": "1"}, on_log=log.append)
        assert (await executor.run(command)).outcome == "done"
        assert b"secret" not in b"".join(log) and b"OWN=1" in b"".join(log)

    on_executor(body, lambda: Zygote(privileges=Privileges(passed=("WANTED",))))


def test_workers_that_are_used_again_never_cross_users() -> None:
    """One client's patched `sum` had answered another's call."""

    async def body(executor: ProcessExecutor) -> None:
        patch = "__import__('builtins').__setattr__('sum', lambda values: 'mine')"
        for number in range(4):
            value(await executor.run(call(number, "mallory", eval, patch, isolate=False)))
        assert value(await executor.run(call(10, "mallory", eval, "sum([1, 2])", isolate=False))) == "mine"
        assert value(await executor.run(call(11, "alice", eval, "sum([1, 2])", isolate=False))) == 3
        assert value(await executor.run(call(12, "alice", builtins.sum, [1, 2], isolate=False))) == 3
        many = [executor.run(call(20 + n, f"user{n}", eval, "sum([1, 2])", isolate=False)) for n in range(6)]
        assert [value(finish) for finish in await asyncio.gather(*many)] == [3] * 6
        assert value(await executor.run(call(30, "last", eval, "sum([1, 2])", isolate=False))) == 3
        assert len({worker.owner for worker in executor._workers if not worker.gone}) <= 7

    on_executor(body, Zygote)


@users
def test_tasks_run_as_user_ids_of_their_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "WORK", Path("/var/tmp"))
    secret = tmp_path / "operator.token"
    secret.write_text("wf_operator_x")
    secret.chmod(0o600)
    apart = choose("users", python=SYSTEM)
    apart.settle(tmp_path, f"test-{os.getpid()}")
    assert apart.work is not None

    async def body(executor: ProcessExecutor) -> None:
        first = {owner: value(await executor.run(system_call(n, owner, os.getuid))) for n, owner in enumerate("ab")}
        assert len(set(first.values())) == 2 and all(FIRST_UID <= uid <= LAST_UID for uid in first.values())
        assert value(await executor.run(system_call(5, "a", os.getuid, isolate=False))) == first["a"]
        assert value(await executor.run(system_call(6, "a", os.getgroups))) == privileges._device_groups()
        assert value(await executor.run(system_call(7, "a", os.getcwd))).endswith("/a")
        denied = await executor.run(system_call(8, "a", eval, f"open({str(secret)!r}).read()"))
        assert denied.outcome == "failed" and "Permission denied" in str(denied.reason)
        back = await executor.run(system_call(9, "a", os.setuid, 0))
        assert back.outcome == "failed"
        folder = apart.folder("a", "..")
        log: list[bytes] = []
        told = ["sh", "-c", "id -u; pwd; echo $HOME; touch f"]
        command = AttemptWork(
            fence=10, owner="a", command=told, folder=str(folder), cpus=1.0, memory_bytes=256 << 20, on_log=log.append
        )
        assert (await executor.run(command)).outcome == "done"
        said = b"".join(log).decode().split()
        assert said == [str(first["a"]), str(folder), str(folder.parent)] and (folder / "f").exists()
        other = AttemptWork(fence=11, owner="b", command=["ls", str(folder)])
        assert (await executor.run(other)).outcome == "failed"

    try:
        on_executor(body, lambda: Zygote(SYSTEM, (), apart), ControlGroups.find(f"test-{os.getpid()}"))
    finally:
        shutil.rmtree(apart.work)


@users
def test_a_function_held_warm_is_loaded_as_its_owner(tmp_path: Path) -> None:
    apart = choose("users", python=SYSTEM)
    apart.settle(tmp_path, f"warm-{os.getpid()}")
    assert apart.work is not None

    async def body(executor: ProcessExecutor) -> None:
        work = system_call(1, "a", os.getuid, memory_bytes=256 << 20, cpus=1.0)
        await executor.templates.warm(work.function, work.blobs[0], "a")
        template = await executor.templates.zygote(work.function, "a")
        assert template is not None and await executor.templates.zygote(work.function, "b") is None
        assert template._process is not None
        who = Path(f"/proc/{template._process.pid}").stat().st_uid
        assert FIRST_UID <= who <= LAST_UID and value(await executor.run(work)) == who

    try:
        on_executor(body, lambda: Zygote(SYSTEM, (), apart), ControlGroups.find(f"warm-{os.getpid()}"))
    finally:
        shutil.rmtree(apart.work)


def test_what_cannot_be_had_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = choose("auto")
    assert found.kind == "self" and "not root" in found.about and "tokens" in found.about
    with pytest.raises(InvalidInput, match="not root"):
        choose("users")
    for wrong in ("podman", "docker:x", "self:x", "apptainer:"):
        with pytest.raises(InvalidInput, match="--tasks-as"):
            choose(wrong)


def test_an_image_that_runs_no_python_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "podman").write_text(
        '#!/bin/sh\ncase "$*" in *good*) exit 0;; esac\necho "Error: no such image" >&2\nexit 125\n'
    )
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert choose("podman:good").contained
    with pytest.raises(InvalidInput, match="podman:nosuch runs no Python here: Error: no such image"):
        choose("podman:nosuch")

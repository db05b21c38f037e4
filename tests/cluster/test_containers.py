"""Tasks in containers of podman's: they see their own folder and nothing of the machine's."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wattflow.runtime.executors.forking import Zygote
from wattflow.runtime.executors.limits import ControlGroups
from wattflow.runtime.executors.privileges import FIRST_UID, LAST_UID, LOWERED, choose
from wattflow.runtime.executors.process import AttemptWork, Finish, ProcessExecutor

PYTHON = Path("/usr/bin/python3")
pytestmark = [
    pytest.mark.skipif(shutil.which("podman") is None, reason="needs podman (`make cluster-tools`)"),
    pytest.mark.skipif(not PYTHON.exists(), reason="needs a Python of the system's for the image"),
]


def run(*command: str | Path, **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with the system's Python and a shell, made of this machine's own files: no registry is asked."""
    root = tmp_path_factory.mktemp("image")
    real = PYTHON.resolve()
    library = Path(run(real, "-c", "import os; print(os.path.dirname(os.__file__))").strip())
    ignored = shutil.ignore_patterns("test", "dist-packages", "__pycache__", "config-*", "idlelib", "lib2to3")
    shutil.copytree(library, root / library.relative_to("/"), ignore=ignored)
    programs = [real, Path("/bin/sh").resolve()]
    linked = run("ldd", *programs, *library.glob("lib-dynload/*.so"))
    for path in {*map(str, programs), *re.findall(r"(/\S+) \(0x", linked)}:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for folder in ("bin", "usr/bin", "tmp", "proc", "sys", "dev", "etc", "var/tmp"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/python3").symlink_to(real)
    if not (root / "bin/sh").exists():
        (root / "bin/sh").symlink_to(programs[1])
    run("chmod", "-R", "a+rX", root)
    archive = root.with_suffix(".tar")
    run("tar", "-C", root, "-cf", archive, ".")
    name = "localhost/wattflow-test"
    run("podman", "import", "--quiet", archive, name)
    archive.unlink()
    shutil.rmtree(root)
    tried = subprocess.run(["podman", "run", "--rm", "--network=host", *LOWERED, name, "python3", "-c", "print(1)"],
                           capture_output=True, text=True, check=False)  # fmt: skip
    if tried.returncode != 0:
        pytest.skip(f"this kernel runs no containers: {tried.stderr.strip()[-200:]}")
    return name


def call(fence: int, owner: str, function: Callable[..., Any], *args: object) -> AttemptWork:
    blobs = (pickle.dumps(function), pickle.dumps((args, {})))
    version = run(PYTHON, "-c", "import sys; print(*sys.version_info[:2], sep='.')").strip()
    return AttemptWork(fence=fence, owner=owner, python=version, function=str(blobs[0]), blobs=blobs)


def value(finish: Finish) -> Any:
    assert finish.outcome == "done", finish
    assert finish.result is not None
    return pickle.loads(finish.result)


def test_tasks_run_in_a_container(tmp_path: Path, image: str) -> None:
    secret = tmp_path / "operator.token"
    secret.write_text("wf_operator_x")
    apart = choose(f"podman:{image}")
    apart.settle(tmp_path, f"podman-{os.getpid()}")
    groups = ControlGroups.find(f"podman-{os.getpid()}")

    async def body(executor: ProcessExecutor) -> None:
        assert value(await executor.run(call(1, "a", eval, "1 + 1"))) == 2
        hidden = value(await executor.run(call(2, "a", os.path.exists, str(secret))))
        assert hidden is False
        who = value(await executor.run(call(3, "a", os.getuid)))
        assert os.geteuid() != 0 or FIRST_UID <= who <= LAST_UID
        status = value(await executor.run(call(4, "a", eval, "open('/proc/self/status').read()")))
        assert "NoNewPrivs:\t1" in status
        folder = apart.folder("a", "w")
        log: list[bytes] = []
        command = AttemptWork(fence=5, owner="a", command=["sh", "-c", "echo $PWD; echo x > f"], folder=str(folder),
                       memory_bytes=256 << 20, cpus=1.0, on_log=log.append)  # fmt: skip
        finish = await executor.run(command)
        assert finish.outcome == "done", (finish, log)
        assert b"".join(log).decode().strip() == str(folder) and (folder / "f").read_text() == "x\n"
        late = AttemptWork(fence=6, owner="a", command=["sh", "-c", "while :; do :; done"], timeout_s=0.5)
        assert (await executor.run(late)).outcome == "time_limit"

    async def main() -> None:
        executor = ProcessExecutor(Zygote("python3", (), apart), workers=2, groups=groups)
        await executor.start()
        try:
            await body(executor)
        finally:
            await executor.close()

    asyncio.run(main())
    assert apart.work is not None
    shutil.rmtree(apart.work)

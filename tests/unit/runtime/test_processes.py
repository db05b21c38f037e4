"""Processes are known by number and start; nobody else's is ever signalled."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wattflow.model.errors import InvalidInput
from wattflow.runtime import processes
from wattflow.runtime.home import Home
from wattflow.runtime.processes import Lineage, lineage_of, lock_file
from wattflow.runtime.tidying import sweep_folders, trim_memory, trim_own_log

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"


def test_a_mark_fits_its_process_alone(tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    with subprocess.Popen(SLEEP) as child:
        processes.mark(path, child.pid, url="http://127.0.0.1:1")
        assert Home(tmp_path).server() == processes.marked(path)
        about = json.loads(path.read_text())
        path.write_text(json.dumps({**about, "started": about["started"] + "0"}))  # its number is a stranger's now
        assert Home(tmp_path).server() is None
        assert not processes.end(path, 5.0) and child.poll() is None
        path.write_text(json.dumps({"pid": child.pid}))  # of a version that noted no start
        assert Home(tmp_path).server() is None and not processes.end(path, 5.0) and child.poll() is None
        processes.mark(path, child.pid)
        assert processes.end(path, 5.0) and child.wait(5) == -signal.SIGTERM and not path.exists()


def test_what_does_not_listen_is_ended_by_force(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        processes.mark(path, child.pid)
        assert processes.end(path, 0.2) and child.wait(5) == -signal.SIGKILL


def test_a_keeper_starts_its_command_again_and_ends_with_it(tmp_path: Path) -> None:
    pids, mark = tmp_path / "pids", tmp_path / "mark"
    code = f"import os, time; open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(60)"
    keeper = subprocess.Popen([sys.executable, "-m", "wattflow.runtime.keeper", str(mark), sys.executable, "-c", code])

    def lives(count: int) -> list[int]:
        end_s = time.monotonic() + 20
        while time.monotonic() < end_s:
            found = [int(one) for one in pids.read_text().split()] if pids.exists() else []
            if len(found) >= count:
                return found
            time.sleep(0.02)
        raise AssertionError(f"not {count} lives")

    os.kill(lives(1)[0], signal.SIGKILL)
    second = lives(2)[1]
    assert processes.end(mark, 10.0) and keeper.wait(10) == 0
    assert processes.started(second) is None


def test_one_agent_works_in_a_folder(tmp_path: Path) -> None:
    first = Lineage(tmp_path)
    with pytest.raises(InvalidInput, match=f"process {os.getpid()}"):
        Lineage(tmp_path)
    first.close()
    again = Lineage(tmp_path)
    assert lineage_of(first.boot()) == lineage_of(again.boot()) and first.boot() != again.boot()
    about = processes.marked(lock_file(tmp_path))
    assert about is not None and about["pid"] == os.getpid()
    again.close()


def test_logs_are_cut_and_old_work_folders_go(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    with path.open("ab") as file:
        file.write(b"x" * 3000)
        file.flush()
        assert trim_own_log(1000, file.fileno())
        assert path.stat().st_size == 0 and (tmp_path / "agent.log.1").stat().st_size == 3000
        file.write(b"more")
        file.flush()
        assert path.read_bytes() == b"more" and not trim_own_log(1000, file.fileno())
    for name in ("old", "used", "new", "fresh-inside"):
        (tmp_path / "work" / name).mkdir(parents=True)
        (tmp_path / "work" / name / "file").touch()
        if name != "new":
            for one in (tmp_path / "work" / name / "file", tmp_path / "work" / name):
                os.utime(one, (1, 1))
    (tmp_path / "work" / "fresh-inside" / "file").touch()
    assert sweep_folders(tmp_path / "work", {"used"}) == 1
    assert sorted(one.name for one in (tmp_path / "work").iterdir()) == ["fresh-inside", "new", "used"]


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_memory_that_is_free_goes_back_to_the_machine() -> None:
    """Blocks that are freed below ones in use stay the process's own until it is told."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    malloc, free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
    malloc.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [malloc(4000) for _ in range(16_384)]
    for block in blocks:
        ctypes.memset(block, 1, 4000)
    for number, block in enumerate(blocks):
        if number % 64:  # the others keep the heap from shrinking by itself
            free(block)
    before = resident()
    assert trim_memory()
    assert before - resident() > 32 << 20
    for block in blocks[::64]:
        free(block)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc, whose malloc has arenas")
def test_threads_of_a_server_share_arenas(tmp_path: Path) -> None:
    """Count the arenas of eight threads that allocate at once, with the bound and without."""
    program = tmp_path / "arenas.py"
    program.write_text(
        "import ctypes, sys, threading\n"
        "from wattflow.runtime.tidying import share_arenas\n"
        "if sys.argv[1] == 'shared':\n"
        "    assert share_arenas()\n"
        "libc, meet = ctypes.CDLL(None), threading.Barrier(9)\n"
        "libc.malloc.restype = ctypes.c_void_p\n"
        "def work():\n"
        "    libc.malloc(1000)\n"
        "    meet.wait()\n"
        "    meet.wait()\n"
        "for _ in range(8):\n"
        "    threading.Thread(target=work, daemon=True).start()\n"
        "meet.wait()\n"
        "libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]\n"
        "libc.fdopen.restype = ctypes.c_void_p\n"
        "libc.fflush.argtypes = [ctypes.c_void_p]\n"
        "out = libc.fdopen(1, b'w')\n"
        "libc.malloc_info(0, out)\n"
        "libc.fflush(out)\n"
        "meet.wait()\n"
    )
    found = {}
    for how in ("shared", "apart"):
        done = subprocess.run([sys.executable, str(program), how], capture_output=True, text=True, check=True)
        found[how] = done.stdout.count("<heap nr=")
    assert found["shared"] <= 2 < found["apart"]

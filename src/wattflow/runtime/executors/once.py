"""One attempt in one process, for engines that start processes themselves (Slurm, Dask).

`python -m wattflow.runtime.executors.once FOLDER` reads the lease and its bytes from ``FOLDER/lease`` and leaves
``FOLDER/ended``.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from wattflow.runtime import messages as m
from wattflow.runtime.executors import zygote
from wattflow.store.objects import Objects


class Errand(msgspec.Struct, frozen=True):
    """A lease with its bytes: function, call, then results of parents."""

    lease: m.Lease
    blobs: list[bytes] = []


def run_errand(errand: Errand, folder: Path) -> m.Ended:
    """Run it here. Large results are left as ``FOLDER/result`` and brought into the store by whoever reads them."""
    spec, began_s, began_cpu_s = errand.lease.spec, time.time(), _cpu_s()
    os.environ.update({"WATTFLOW_TASK": str(errand.lease.task), "WATTFLOW_ATTEMPT": str(errand.lease.number)})
    result: bytes | None = None
    outcome: m.Ending
    if spec.command is not None:
        outcome, reason = _command(spec, folder)
    else:
        variant = spec.variants[errand.lease.variant]
        header = {"python": spec.python, "function": variant.function or spec.function, "env": spec.environment}
        answer, data = zygote.call_once(header, list(errand.blobs))
        outcome = "done" if answer["ok"] else "refused" if answer.get("refused") else "failed"
        reason, result = answer.get("reason"), data or None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return m.Ended(fence=errand.lease.fence, outcome=outcome, started_s=began_s, ended_s=time.time(),
                   cpu_s=_cpu_s() - began_cpu_s, peak_bytes=peak, reason=reason,
                   result=m.Blob(data=result) if result is not None else None)  # fmt: skip


def _command(spec: m.Task, folder: Path) -> tuple[m.Ending, str | None]:
    assert spec.command is not None
    try:
        done = subprocess.run(
            spec.command, cwd=folder, env={**os.environ, **spec.environment}, timeout=spec.timeout_s, check=False
        )
    except FileNotFoundError:
        return "failed", "exit code 127"
    except PermissionError:
        return "failed", "exit code 126"
    except subprocess.TimeoutExpired:
        return "time_limit", f"ran longer than its {spec.timeout_s:g} s"
    code = done.returncode
    return ("done", None) if code == 0 else ("failed", f"exit code {code}" if code > 0 else f"ended by signal {-code}")


def _cpu_s() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def write_whole(path: Path, data: bytes) -> None:
    """A file that appears whole."""
    draft = path.with_name(path.name + ".draft")
    draft.write_bytes(data)
    draft.replace(path)


def main(folder: Path) -> int:
    """Run the errand of a folder."""
    # Started with -P, so that no `copy.py` of the user's comes before Python's own while we load; now their functions
    # find their modules.
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, str(Path.cwd()))
    errand = msgspec.msgpack.decode((folder / "lease").read_bytes(), type=Errand)
    with contextlib.suppress(OSError):
        (folder / "started").touch()
    work = folder.parent / "work" / m.folder_name(errand.lease.workflow)
    work.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "ended", m.pack(run_errand(errand, work)))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))


def errand_of(lease: m.Lease, objects: Objects) -> Errand:
    """The lease and everything that its call needs."""
    spec = lease.spec
    function = spec.variants[lease.variant].function or spec.function
    if function is None or spec.call is None:
        return Errand(lease)
    blobs = [objects.get(function), _bytes(spec.call, objects), *(_bytes(blob, objects) for blob in lease.inputs)]
    return Errand(lease, blobs)


def brought_home(end: m.Ended, objects: Objects) -> m.Ended:
    """The same end with a large result as an object."""
    if end.result is None or end.result.data is None or len(end.result.data) <= m.INLINE_BYTES:
        return end
    name = objects.put(end.result.data)
    fields = {field: getattr(end, field) for field in end.__struct_fields__}
    return m.Ended(**fields | {"result": m.Blob(object=name)})


def _bytes(blob: m.Blob, objects: Objects) -> bytes:
    if blob.data is not None:
        return blob.data
    return objects.get(blob.object) if blob.object is not None else b""


def modelled(end: m.Ended, watts_per_cpu: float) -> m.TaskEnergy:
    """Joules where nothing counted them: CPU seconds by the watts that a busy CPU may add. Guessed, and wide."""
    joules = end.cpu_s * watts_per_cpu
    return m.TaskEnergy(end.fence, m.Energy(joules, 0.0, 3.0 * joules, "guessed", joules))

"""A new snapshot without a pause: a process of its own replays what the store has and writes the engine that comes out.

The engine is deterministic, so snapshot and journal are as good as the engine in memory, and copying that one would
hold the server's loop up for as long as its tables are large. The server loses a short start of a process and some of
another core; it goes on deciding meanwhile. ``python -m wattflow.runtime.compaction`` is that process; it reads what
it needs to know from its standard input (a store's URL may hold a password, which does not belong into an argument).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import sqlalchemy as sa

from wattflow.model.errors import WattflowError
from wattflow.runtime.decider import Decider
from wattflow.runtime.service import Service
from wattflow.runtime.turns import call_in, settle
from wattflow.store import reads
from wattflow.store.statements import Change
from wattflow.store.writer import Writer

LONGEST_S = 600.0
NICE = 10
PIECE, PAUSE_S = 128, 0.005
"""Entries of the journal that are forgotten with one group, and a pause after it."""


async def take_snapshot(service: Service, database: sa.Engine, folder: Path) -> None:
    """Have the engine saved as it is now; the journal up to here is not needed any more once that is on disk."""
    sequence = service.ledger.next_entry - 1
    await service.stored()
    store = database.url.render_as_string(hide_password=False)
    wanted = {"store": store, "folder": str(folder), "sequence": sequence, "policy": service.decider.policy}
    told = await _elsewhere(json.dumps(wanted))
    service.writer.put((Change.META, {"key": "snapshot", "value": told}))
    await service.stored()
    await _forget(service.writer, await asyncio.to_thread(reads.first_entry, database), sequence)
    await asyncio.to_thread(_tidy, folder, sequence)


def rebuilt(database: sa.Engine, folder: Path, policy: str, up_to: int | None = None) -> tuple[Decider, int, float]:
    """The engine after what the store has, the number of the last entry in it, and the time of its last step."""
    decider = Decider(policy)
    sequence, last_s = 0, 0.0
    snapshot = reads.meta(database).get("snapshot")
    if snapshot is not None:
        about = json.loads(snapshot)
        decider.load(folder / about["file"])
        decider.policy, sequence, last_s = about["policy"], about["sequence"], about["time_s"]
    for number, entry in reads.journal(database, sequence, up_to):
        sequence, last_s = number, max(last_s, decider.replay(msgspec.msgpack.decode(entry)))
    return decider, sequence, last_s


def write_snapshot(store: str, folder: Path, up_to: int, policy: str) -> str:
    """Replay and save; returns what the store must know of the file."""
    decider, sequence, last_s = rebuilt(sa.create_engine(store), folder, policy, up_to)
    if sequence != up_to:
        raise WattflowError(f"the journal ends at entry {sequence}, not at {up_to}")
    name = f"engine-{sequence}"
    decider.save(folder / name)
    return json.dumps({"file": name, "sequence": sequence, "policy": decider.policy, "time_s": last_s})


async def _elsewhere(wanted: str) -> str:
    """The same in another process. Raises OSError where it fails: the journal stays, the next try has more of it."""
    process = await asyncio.to_thread(_process)  # in a thread: starting one takes a while, and fork would take longer
    try:
        told, said = await asyncio.to_thread(process.communicate, wanted, LONGEST_S)
    except subprocess.TimeoutExpired:
        raise OSError(f"the engine was not saved within {LONGEST_S:g} s") from None
    finally:
        if process.poll() is None:  # the server ends, or has waited long enough
            process.kill()
    if process.returncode:
        last = said.strip().splitlines()[-1:] or [f"status {process.returncode}"]
        raise OSError(f"the engine was not saved: {last[0]}")
    return told.strip()


def _process() -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "wattflow.runtime.compaction"]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


async def _forget(writer: Writer, first: int | None, last: int) -> None:
    """Let go of entries that the snapshot holds, a few with a group: a second one who writes to the store would make
    the writer wait."""
    loop = asyncio.get_running_loop()
    while first is not None and first <= last:
        writer.put((Change.JOURNAL_FORGET, {"b_from": first, "b_to": min(first + PIECE, last + 1)}))
        done: asyncio.Future[None] = loop.create_future()
        writer.settled(partial(call_in, loop, settle, [done]))
        await done
        await asyncio.sleep(PAUSE_S)
        first += PIECE


def _tidy(folder: Path, sequence: int) -> None:
    for old in folder.glob("engine-*"):
        if not old.name.startswith(f"engine-{sequence}"):
            old.unlink(missing_ok=True)


def main() -> None:
    """What `take_snapshot` starts."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    given = json.load(sys.stdin)
    print(write_snapshot(given["store"], Path(given["folder"]), given["sequence"], given["policy"]))  # noqa: T201


if __name__ == "__main__":
    main()

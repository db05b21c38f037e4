"""Copies of an engine: in memory for looking ahead, in a file for the next start."""

from __future__ import annotations

import io
import json
import mmap
import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from wattflow.engine.tables import State
from wattflow.files.whole import whole_file
from wattflow.kernel import records
from wattflow.kernel.handle import Tables, as_bytes
from wattflow.live.engine import Engine
from wattflow.live.growth import end_lists, fit_boards, grown, without_spare
from wattflow.live.object_codec import Decoder, Encoder, cloned
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.policy import bind, registry
from wattflow.policy.base import Policy

VERSION = 3
Kind = TypeVar("Kind", bound=Tables)
_STATE_SCRATCH = ("timers", "actions", "ended", "candidates", "cost", "gang", "scratch", "placed", *State.UNSAVED)
_DESK_SCRATCH = ("events", "order", "tally", "arrivals", "fresh", "changed", "placements", "actions", "rejected")
"""Tables that hold nothing between two steps, but for the first timers and events."""
_MADE_ANEW = ("_inbox", "_words", "_kernels", "_functions", "policy", "state", "_desk")
"""Attributes that an engine makes from the rest when it starts, and what is written apart."""


def _kept(engine: Engine) -> dict[str, Any]:
    """Return the engine's own attributes that are neither tables nor made from them."""
    return {name: value for name, value in vars(engine).items() if name not in _MADE_ANEW and not callable(value)}


def _between_steps(tables: Kind, scratch: tuple[str, ...], shorter: Mapping[str, Any] | None = None) -> Kind:
    """Make a copy in which tables that hold nothing between two steps are empty; their memory is taken when it is used.

    ``shorter`` tables are copied in the place of the whole ones.
    """
    kept = {name: getattr(tables, name) for name in tables.NAMES} | dict(shorter or {})
    made: Kind = type(tables)(**kept | {name: kept[name][:0] for name in scratch}).copy()
    made.replace(**{name: _blank(kept[name]) for name in scratch})
    return made


def _blank(table: Any) -> Any:
    """Make zeros in the size of a table. Pages of a large one come from the system when they are first written."""
    if table.nbytes < 1 << 20:
        return grown(table[:0], len(table))
    pages = np.frombuffer(mmap.mmap(-1, table.nbytes), np.uint8)
    return pages.view(table.dtype).reshape(table.shape).view(type(table))


def fork(engine: Engine) -> Engine:
    """Make an engine that goes on by itself; the original does not notice. Tables are copied as bytes."""
    made = object.__new__(Engine)
    state = _between_steps(engine.state, _STATE_SCRATCH, without_spare(engine.state))
    # A shorter table ends its free list earlier; without this a fork would hand out rows that it does not have.
    end_lists(state, engine.state)
    desk = _between_steps(engine._desk, _DESK_SCRATCH)
    timers, events = int(engine.state.counts["timer_n"][0]), engine._inbox.count
    as_bytes(state.timers[:timers])[...] = as_bytes(engine.state.timers[:timers])
    as_bytes(desk.events[:events])[...] = as_bytes(engine._desk.events[:events])
    # Books point at State and Desk: in the copy they must point at the copies.
    memo: dict[int, Any] = {id(engine.state): state, id(engine._desk): desk, id(engine): made}
    vars(made).update({name: cloned(value, memo) for name, value in _kept(engine).items()})
    made.policy, made._kernels, made._functions = engine.policy, engine._kernels, engine._functions
    made.state, made._desk = state, desk
    made._take_up()
    made._told = engine._told
    return made


def save(engine: Engine, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None) -> None:
    """Write everything to one file, which appears whole or not at all; ``notes`` are the caller's (plain data)."""
    encoder = Encoder({id(engine.state): "state", id(engine._desk): "desk"})
    head = {
        "version": VERSION,
        "policy": described(engine.policy),
        "notes": dict(notes or {}),
        "told": engine._told,
        "kept": {name: encoder.encode(value) for name, value in _kept(engine).items()},
    }
    with whole_file(path) as place, place.open("wb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("engine.json", json.dumps(head))
            archive.writestr("state.npz", records.dump(engine.state))
            archive.writestr("desk.npz", records.dump(engine._desk))
        file.flush()
        # Before the rename that `whole_file` does: a name must never point at bytes that are not on the disk.
        os.fsync(file.fileno())
    _sync_folder(Path(path).parent)


def _sync_folder(folder: Path) -> None:
    """Bring a rename to the disk: it is there when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load(path: str | os.PathLike[str], policies: Mapping[str, Policy] | None = None) -> tuple[Engine, dict[str, Any]]:
    """Return the engine that was saved, and the notes with it; ``policies`` are those that no registry knows."""
    source = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            head = json.loads(archive.read("engine.json"))
            tables = {name: archive.read(f"{name}.npz") for name in ("state", "desk")}
    except (zipfile.BadZipFile, KeyError, EOFError, ValueError) as problem:
        raise InvalidInput(source, f"it holds no engine: {problem}") from None
    if head.get("version") != VERSION:
        raise InvalidInput(source, f"it is of version {head.get('version')!r}; this is version {VERSION}")
    made = Engine(policy_of(head["policy"], policies or {}, source))
    made.state = records.read(io.BytesIO(tables["state"]), made.state, source)
    made._desk = records.read(io.BytesIO(tables["desk"]), made._desk, source)
    decoder = Decoder({"state": made.state, "desk": made._desk}, source)
    for name, data in head["kept"].items():
        setattr(made, name, decoder.decode(data))
    # Kept costs are not in the file: empty boards of the right size, filled by the next decision.
    fit_boards(made.state)
    made._functions = bind.bind(made.policy, made.state)
    made._take_up()
    made._told = head["told"]
    return made, head["notes"]


def note_anew(engine: Engine) -> None:
    """Have the policy note its nodes anew, as it also does when one comes: an earlier version kept other notes."""
    if not engine._nodes.changed:  # else it does so before it decides
        engine._let_prepare()


def described(policy: Policy) -> dict[str, Any]:
    """Return a policy as plain data: its name, its numbers, and what is set otherwise than usual."""
    encoder = Encoder({})
    return {
        "name": policy.name,
        "params": dict(policy.params),
        "sleep_after_s": policy.sleep_after_s,
        "settings": encoder.encode(policy.settings),
    }


def policy_of(data: Mapping[str, Any], own: Mapping[str, Policy], source: str) -> Policy:
    """Return the policy that `described` wrote; ``own`` are those that no registry knows."""
    name = data["name"]
    try:
        policy = own[name] if name in own else registry.load(name)
    except WattflowError:
        what = f"its policy {name!r} is in no registry; pass it as policies={{{name!r}: …}}"
        raise InvalidInput(source, what) from None
    settings = Decoder({}, source).decode(data["settings"])
    return replace(policy, params=data["params"], sleep_after_s=data["sleep_after_s"], settings=settings)


__all__ = ["described", "fork", "load", "note_anew", "policy_of", "save"]

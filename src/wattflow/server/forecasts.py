"""Forecasts in processes of their own that can be cancelled; everybody has only a few at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException

from wattflow.model.errors import InvalidInput, unknown_name
from wattflow.policy import registry

log = logging.getLogger(__name__)
MOST_RUNNING, MOST_IN_ALL, MOST_KEPT = 2, 6, 20
LONGEST_S = 600.0
ANSWER_BYTES = 4 << 20
_POLICY = re.compile(r"([a-z0-9-]+)(:[a-z_]+=[-+.0-9e]+(,[a-z_]+=[-+.0-9e]+)*)?")


class ForecastRequest(msgspec.Struct, frozen=True):
    """A forecast to be made: the present rolled forward, or a recorded workflow under other policies."""

    kind: Literal["roll", "rerun"] = "roll"
    policies: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(min_length=1, max_length=8)] = msgspec.field(
        default_factory=lambda: ["least-energy"]
    )
    for_s: Annotated[float, Meta(gt=0, le=1e8)] | None = None
    seeds: Annotated[int, Meta(ge=1, le=20)] = 3
    spread: Annotated[float, Meta(ge=0, le=2)] = 0.3
    workflow: Annotated[str, Meta(max_length=200)] | None = None
    cluster: Annotated[str, Meta(max_length=200)] | None = None


@dataclass(slots=True)
class ForecastJob:
    """One that was asked for."""

    id: str
    owner: str
    wanted: ForecastRequest
    asked_s: float
    state: str = "running"
    ended_s: float | None = None
    error: str | None = None
    present: dict[str, float | None] | None = None
    results: list[dict[str, Any]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    def shown(self) -> dict[str, Any]:
        """It as plain data."""
        names = ("id", "state", "asked_s", "ended_s", "error", "present", "results")
        return {"kind": self.wanted.kind, "wanted": self.wanted} | {name: getattr(self, name) for name in names}


class Forecasts:
    """All forecasts of a server; they are not kept beyond its end."""

    def __init__(self, store: str, folder: Path, now: Callable[[], float]) -> None:
        self._store, self._folder, self._now = store, folder, now
        self._known: dict[str, ForecastJob] = {}

    def start(self, wanted: ForecastRequest, owner: str) -> ForecastJob:
        """Begin one. Raises InvalidInput for what cannot be, HTTPException where too many run."""
        check(wanted)
        # Each is a process of its own: without a limit one user's clicks would take the machine.
        running = [one for one in self._known.values() if one.state == "running"]
        if sum(one.owner == owner for one in running) >= MOST_RUNNING or len(running) >= MOST_IN_ALL:
            raise HTTPException(429, f"{MOST_RUNNING} forecasts run at once for a user; cancel one or wait for it")
        made = ForecastJob(secrets.token_hex(8), owner, wanted, self._now())
        self._known[made.id] = made
        made.task = asyncio.create_task(self._run(made))
        self._forget(owner)
        return made

    def of(self, owner: str | None) -> list[ForecastJob]:
        """Those of an owner, or all, the latest first."""
        return [one for one in reversed(self._known.values()) if owner is None or one.owner == owner]

    def get(self, identity: str, owner: str | None) -> ForecastJob | None:
        """One of an owner's."""
        found = self._known.get(identity)
        return found if found is not None and (owner is None or found.owner == owner) else None

    async def cancel(self, forecast: ForecastJob) -> None:
        """End one; its process is gone when this returns."""
        if forecast.task is not None and not forecast.task.done():
            forecast.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await forecast.task

    async def close(self) -> None:
        """End all."""
        for forecast in self._known.values():
            await self.cancel(forecast)

    async def _run(self, made: ForecastJob) -> None:
        given = msgspec.to_builtins(made.wanted) | {
            "store": self._store,
            "folder": str(self._folder),
            "now_s": made.asked_s,
        }
        try:
            told = await asyncio.wait_for(_elsewhere(json.dumps(given).encode()), LONGEST_S)
            made.present, made.results = told["present"], told["results"]
            made.state = "done"
        except asyncio.CancelledError:
            made.state = "cancelled"
            raise
        except TimeoutError:
            made.state, made.error = "failed", f"it took longer than {LONGEST_S:g} s"
        except (OSError, ValueError) as error:
            made.state, made.error = "failed", str(error)
        except Exception as error:  # a bug: whoever waits is told, and the log has the rest
            log.exception("a forecast failed")
            made.state, made.error = "failed", type(error).__name__
        finally:
            made.ended_s = self._now()

    def _forget(self, owner: str) -> None:
        mine = [one for one in self._known.values() if one.owner == owner and one.state != "running"]
        for old in mine[: max(0, len(mine) - MOST_KEPT)]:
            del self._known[old.id]


def check(wanted: ForecastRequest) -> None:
    """Refuse what names files: a policy or a cluster of a file would be read, or run, by the server.

    Raises:
        InvalidInput: So it is, or there is no such name.
    """
    for name in wanted.policies:
        found = _POLICY.fullmatch(name)
        if found is None:
            raise InvalidInput("policies", f"{name!r} is not a name with numbers, such as carbon-delay:delay_s=3600")
        if not registry.is_known(found[1]):
            raise unknown_name("policy", found[1], registry.names())
    if wanted.kind == "rerun" and wanted.workflow is None:
        raise InvalidInput("workflow", "which one shall be run again? Give its id")
    if wanted.cluster is not None:
        from wattflow.clusters.toml_file import preset_names

        if wanted.kind == "roll":
            raise InvalidInput("cluster", "the present is rolled forward on the nodes that are there; leave it out")
        if wanted.cluster not in preset_names():
            raise unknown_name("cluster", wanted.cluster, preset_names())


async def _elsewhere(given: bytes) -> dict[str, Any]:
    """Results of a process of its own. Raises OSError with what it said where it failed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "wattflow.server.forecasting", stdin=pipe, stdout=pipe, stderr=pipe,
        start_new_session=True, limit=ANSWER_BYTES,
    )  # fmt: skip
    try:
        told, said = await process.communicate(given)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = said.decode(errors="replace").strip().splitlines()[-1:] or [f"status {process.returncode}"]
        raise OSError(last[0])
    found: dict[str, Any] = json.loads(told)
    return found

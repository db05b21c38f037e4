"""The client: a ``concurrent.futures`` executor whose work runs wherever the server's engine puts it.

    with wattflow.Client() as ex:
        parts = [ex.submit(work, n) for n in range(10)]
        total = ex.submit(combine, parts)        # futures as arguments are edges of a DAG
        print(total.result(), total.energy())

One thread sends what was submitted since its last request, another waits for ends. Both go on when the server was
restarted.
"""

from __future__ import annotations

import concurrent.futures
import queue
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from wattflow.model import units
from wattflow.model.errors import WattflowError
from wattflow.runtime import messages as m
from wattflow.runtime.clear_text import check_server
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home
from wattflow.runtime.payload import PYTHON, dump_call, dump_function, load_result
from wattflow.runtime.task import TaskFunction, Way
from wattflow.runtime.transport import Denied
from wattflow.store.objects import object_name

BATCH = 512
WAIT_S = 5.0


class TaskFailed(WattflowError):
    """A task ended badly without an exception of its own: a lost process, a limit, a failed parent."""


@dataclass(frozen=True, slots=True)
class TaskEnergy:
    """Joules of a task, all its attempts together, with the band they lie in and where they come from."""

    joules: float
    low_j: float
    high_j: float
    provenance: str
    attempts: int

    def __str__(self) -> str:
        return f"{units.human_energy(self.joules)} ({self.low_j:.3g} to {self.high_j:.3g} J, {self.provenance})"


class TaskFuture(concurrent.futures.Future[Any]):
    """A task's end to come. As an argument of another task it is an edge."""

    def __init__(self, client: Client, key: str) -> None:
        super().__init__()
        self.client, self.key = client, key

    def cancel(self) -> bool:
        """Cancel the task, waiting or running."""
        if not super().cancel():
            return False
        self.client._cancel(self.key)
        return True

    def attempts(self, timeout: float | None = None) -> list[dict[str, Any]]:
        """Every attempt of the task: where, when, as which variant, how it ended, joules; waits for the task's end."""
        self.exception(timeout)
        return self.client._attempts(self.key)

    def energy(self, timeout: float | None = 30.0) -> TaskEnergy:
        """Joules of the task; waits for its end, and until its node has told them (a second or two after)."""
        self.exception(timeout)
        return self.client._energy(self.key, timeout)


class Client(concurrent.futures.Executor):
    """An executor on a wattflow server.

    Args:
        server, token: The server of this machine unless told otherwise.
        name: What the workflow is called.
        objective: ``energy``, ``response``, ``makespan``, ``edp``, ``cost`` or ``utilisation``: which policy decides.
        deadline: Seconds (or ``"2h"``) until everything should have ended.
        patience: How long a server that is away may stay so before futures fail.
        energy_budget: Joules (or ``"50 Wh"``) that the workflow may use; the server holds new tasks beyond it.
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        *,
        name: str = "session",
        objective: m.Objective | None = None,
        deadline: str | float | None = None,
        energy_budget: str | float | None = None,
        ca: str | None = None,
        patience: str | float = "5min",
    ) -> None:
        home = Home.of()
        if server is not None:
            check_server(server)
        self._server = server or home.addresses()
        self._token = token or home.token("user")
        self._ca = ca or (home.ca() if server is None else None)
        self._patience_s = units.duration_s(patience)
        self.workflow = f"{name}-{uuid.uuid4().hex[:12]}"
        self._about = {
            "name": name, "objective": objective,
            "deadline_s": units.duration_s(deadline) if deadline is not None else None,
            "energy_budget_j": joules(energy_budget) if energy_budget is not None else None,
        }  # fmt: skip
        self._futures: dict[str, TaskFuture] = {}
        self._functions: dict[int, tuple[object, str]] = {}
        self._queue: queue.SimpleQueue[m.Task | None] = queue.SimpleQueue()
        self._lock, self._calling = threading.Lock(), threading.Lock()
        self._number = 0
        self._open = 0
        self._closed = False
        self._broken: BaseException | None = None
        self._calls = self._connect()
        self._calls.addresses.learn(self._calls.call("GET", "/v1/status").get("servers", []))
        self._server = str(self._calls.addresses)
        self._sender = threading.Thread(target=self._send_loop, name="wattflow-send", daemon=True)
        self._receiver: threading.Thread | None = None
        self._sender.start()

    # ---- the executor

    def submit(self, fn: Callable[..., object] | TaskFunction, /, *args: object, **kwargs: object) -> TaskFuture:
        """Run a function on the cluster; futures among the arguments are waited for there, not here."""
        made = fn if isinstance(fn, TaskFunction) else TaskFunction(fn, [_PLAIN_WAY])
        call, parents = dump_call(args, kwargs, TaskFuture)
        for parent in parents:
            if parent.client is not self:
                raise ValueError("a future of another client cannot be an argument; pass its result")
        with self._lock:
            if self._closed or self._broken is not None:
                raise RuntimeError("the client is closed") from self._broken
            self._number += 1
            key = f"{self._number}"
            future = TaskFuture(self, key)
            self._futures[key] = future
            self._open += 1
        blob = m.Blob(data=call) if len(call) <= m.INLINE_BYTES else m.Blob(object=self._upload(call))
        keys = [parent.key for parent in parents]
        self._queue.put(m.Task(
            key=key, name=made.name, function_name=made.name, function=self._function(made.function), call=blob,
            python=PYTHON, parents=keys, results=keys, variants=[self._variant(way) for way in made.ways],
            timeout_s=made.timeout_s, retries=made.retries, isolate=made.isolate, estimate_s=made.estimate_s,
        ))  # fmt: skip
        return future

    def run(
        self, command: list[str], *, after: list[TaskFuture] | None = None, name: str | None = None, **needs: object
    ) -> TaskFuture:
        """Run a program on the cluster."""
        from wattflow.runtime.task import _way

        options: dict[str, Any] = {
            key: needs.pop(key) for key in ("timeout_s", "retries", "environment") if key in needs
        }
        with self._lock:
            self._number += 1
            key = f"{self._number}"
            future = self._futures[key] = TaskFuture(self, key)
            self._open += 1
        self._queue.put(m.Task(
            key=key, name=name or command[0], function_name=name or command[0], command=list(command),
            parents=[parent.key for parent in after or ()], variants=[_way(needs, None).variant(None)], **options,
        ))  # fmt: skip
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more tasks; the workflow is sealed. Waits for the tasks unless told not to."""
        if cancel_futures:
            for future in list(self._futures.values()):
                future.cancel()
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._queue.put(None)
        self._sender.join()
        if wait and self._receiver is not None:
            self._receiver.join()
        # The threads' own connections close with them; this one serves energy() even after the end.

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error in the block nobody waits for the rest.
        self.shutdown(wait=kind is None, cancel_futures=kind is not None)

    # ---- threads

    def _send_loop(self) -> None:
        connection = self._connect()
        sealed = False
        try:
            while not sealed:
                first = self._queue.get()
                batch = [first]
                while len(batch) < BATCH:
                    try:
                        batch.append(self._queue.get_nowait())
                    except queue.Empty:
                        break
                tasks = [task for task in batch if task is not None]
                sealed = len(tasks) < len(batch)
                submission = m.Submission(workflow=self.workflow, tasks=tasks, seal=sealed, **self._about)  # type: ignore[arg-type]
                connection.patiently("POST", "/v1/submissions", submission, m.Accepted, self._patience_s)
                if self._receiver is None and tasks:
                    self._receiver = threading.Thread(target=self._receive_loop, name="wattflow-receive", daemon=True)
                    self._receiver.start()
        except BaseException as error:
            self._break(error)
        finally:
            connection.close()

    def _receive_loop(self) -> None:
        connection, last = self._connect(), 0
        try:
            while True:
                with self._lock:
                    if self._closed and self._open == 0:
                        return
                path = f"/v1/workflows/{self.workflow}/outcomes?after={last}&wait_s={WAIT_S if self._open else 1}"
                answer = connection.patiently("GET", path, None, m.Outcomes, self._patience_s)
                last = answer.last
                for outcome in answer.outcomes:
                    self._resolve(connection, outcome)
        except BaseException as error:
            self._break(error)
        finally:
            connection.close()

    def _resolve(self, connection: Connection, outcome: m.Outcome) -> None:
        future = self._futures.pop(outcome.key, None)
        if future is None:
            return
        with self._lock:
            self._open -= 1
        if not future.set_running_or_notify_cancel():
            return
        try:
            blob = outcome.result
            data = None if blob is None else blob.data
            if blob is not None and blob.object is not None:
                data = connection.raw("GET", f"/v1/objects/{blob.object}")[0]
            if outcome.state == "done":
                future.set_result(load_result(data) if data is not None else None)
            elif outcome.state == "cancelled":
                future.set_exception(concurrent.futures.CancelledError(outcome.reason or "cancelled"))
            else:
                future.set_exception(_failure(outcome, data))
        except BaseException as error:
            future.set_exception(error)

    def _break(self, error: BaseException) -> None:
        """The server is gone or refuses: nobody waits for ever."""
        with self._lock:
            self._broken = error
            futures, self._futures = self._futures, {}
            self._open = 0
        for future in futures.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    # ---- small parts

    def _connect(self) -> Connection:
        return Connection(self._server, self._token, self._ca)

    def _function(self, function: Callable[..., Any]) -> str:
        """The function's object; uploaded once. It is kept alive here, so that its identity stays its own."""
        known = self._functions.get(id(function))
        if known is None:
            known = self._functions[id(function)] = (function, self._upload(dump_function(function)))
        return known[1]

    def _variant(self, way: Any) -> m.Variant:
        if way.fpga is not None:
            from wattflow.runtime.executors.fpga.run import KernelCall

            key = hash(("fpga", way.fpga))
            if key not in self._functions:
                self._functions[key] = (way, self._upload(dump_function(KernelCall(way.fpga))))
            return way.variant(self._functions[key][1])  # type: ignore[no-any-return]
        variant = _VARIANTS.get(way) if way.function is None else way.variant(self._function(way.function))
        if variant is None:
            variant = _VARIANTS[way] = way.variant(None)
        return variant

    def _upload(self, data: bytes) -> str:
        with self._calling:  # an object's name is its content: putting it twice is putting it once
            self._calls.patiently("POST", "/v1/objects", data, for_s=self._patience_s)
        return object_name(data)

    def _cancel(self, key: str) -> None:
        with self._calling:
            try:
                path = f"/v1/workflows/{quote(self.workflow)}/cancel?key={quote(key)}"
                self._calls.patiently("POST", path, b"", for_s=self._patience_s)
            except Denied:
                return

    def _attempts(self, key: str) -> list[dict[str, Any]]:
        with self._calling:
            path = f"/v1/workflows/{quote(self.workflow)}/attempts?key={quote(key)}"
            rows: list[dict[str, Any]] = self._calls.patiently("GET", path, for_s=self._patience_s)
        return rows

    def _energy(self, key: str, timeout: float | None) -> TaskEnergy:
        end_s = time.monotonic() + (timeout if timeout is not None else 1e9)
        while True:
            rows = self._attempts(key)
            ran = [row for row in rows if row["outcome"] not in ("refused", None)]
            lost = [row for row in ran if row["energy_j"] is None and row["outcome"] == "node_lost"]
            known = [row for row in ran if row["energy_j"] is not None]
            if ran and len(known) + len(lost) == len(ran) and known:
                worst = max((row["provenance"] for row in known), key=_PROVENANCE.index)
                sums = [sum(row[name] for row in known) for name in ("energy_j", "low_j", "high_j")]
                return TaskEnergy(sums[0], sums[1], sums[2], worst, len(ran))
            if time.monotonic() > end_s:
                raise TimeoutError(f"the joules of task {key} are not known yet")
            time.sleep(0.1)


def joules(text: str | float) -> float:
    """``"50 Wh"``, ``"1.2 kWh"``, ``"300 kJ"`` or joules."""
    if isinstance(text, int | float):
        return float(text)
    value, _, unit = text.strip().partition(" ")
    scale = {"J": 1.0, "kJ": 1e3, "MJ": 1e6, "Wh": units.J_PER_WH, "kWh": units.J_PER_KWH, "": 1.0}
    try:
        return float(value) * scale[unit.strip()]
    except (ValueError, KeyError):
        raise ValueError(f"{text!r} is not an energy; write for example '50 Wh' or '300 kJ'") from None


def _failure(outcome: m.Outcome, data: bytes | None) -> BaseException:
    if data:
        error = load_result(data)
        if isinstance(error, BaseException):
            return error
    return TaskFailed(outcome.reason or "failed")


_PLAIN_WAY = Way("cpu")
_VARIANTS: dict[Way, m.Variant] = {}
_PROVENANCE = ("measured", "attributed", "modelled", "guessed")

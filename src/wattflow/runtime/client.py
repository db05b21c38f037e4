"""The client: a ``concurrent.futures`` executor whose work runs wherever the server's engine puts it.

    with wattflow.Client() as ex:
        parts = [ex.submit(work, n) for n in range(10)]
        total = ex.submit(combine, parts)        # futures as arguments are edges of a DAG
        print(total.result(), total.energy())

One thread sends what was submitted since its last request, another waits for ends. Both go on when the server was
restarted. A script that ends without closing its client closes it then, and waits for its tasks as pools of the
standard library do.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import itertools
import os
import queue
import re
import threading
import time
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from wattflow.files.whole import small_text
from wattflow.model import units
from wattflow.model.errors import InvalidInput
from wattflow.runtime import messages as m
from wattflow.runtime import payload
from wattflow.runtime.addresses import check_server, segment
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home
from wattflow.runtime.payload import TaskEnergy, TaskFailed, TaskFuture
from wattflow.runtime.task import TaskFunction, Way, _way, check_retries
from wattflow.runtime.transport import Denied, Unreachable
from wattflow.store.objects import object_name

__all__ = ["Client", "TaskEnergy", "TaskFailed", "TaskFuture", "joules"]
BATCH = 512
WAIT_S = 5.0
KNOWN_OBJECTS = 4096
SERVER, TOKEN_FILE = "WATTFLOW_SERVER", "WATTFLOW_TOKEN_FILE"
"""Variables that `wattflow run` sets for a script's own client."""
_TASK = msgspec.msgpack.Decoder(m.Task)
T = TypeVar("T")


class Client(concurrent.futures.Executor):
    """An executor on a wattflow server.

    Args:
        server: Its address; else ``WATTFLOW_SERVER``, else the server of this machine.
        token: For that server; else what ``WATTFLOW_TOKEN_FILE`` holds, else this machine's own.
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
        # A token of the environment goes to no other server than that of the environment.
        if server is None:
            server = os.environ.get(SERVER) or None
            token = token or _given_token(os.environ.get(TOKEN_FILE))
        if server is not None:
            check_server(server)
        if objective is not None and objective not in get_args(m.Objective):
            raise InvalidInput("objective", f"{objective!r} is not one of {', '.join(get_args(m.Objective))}")
        if not isinstance(name, str) or not 1 <= len(name) <= m.LONGEST_NAME:
            raise InvalidInput("name", f"a workflow's is a text of 1 to {m.LONGEST_NAME} characters, not {name!r:.80}")
        self._server = server or home.addresses()
        self._look = home.addresses if server is None else None
        self._token = token or home.token("user")
        self._ca = ca or (home.ca() if server is None else None)
        self._patience_s = units.duration_s(patience)
        self.workflow = m.workflow_id(name)
        self._path = f"/v1/workflows/{segment(self.workflow)}"
        self._about: dict[str, Any] = {
            "name": m.as_name(name, "session"),
            "objective": objective,
            "deadline_s": units.duration_s(deadline) if deadline is not None else None,
            "energy_budget_j": joules(energy_budget) if energy_budget is not None else None,
        }
        self._futures: dict[str, TaskFuture] = {}
        self._functions: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._objects: dict[str, None] = {}
        self._queue: queue.SimpleQueue[tuple[str, msgspec.Raw] | None] = queue.SimpleQueue()
        self._lock, self._calling = threading.Lock(), threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._number = 0
        self._sent = self._closed = False
        self._broken: BaseException | None = None
        self._calls = self._connect()
        self._calls.addresses.learn(self._calls.call("GET", "/v1/status").get("servers", []))
        self._server = str(self._calls.addresses)
        self._sender = threading.Thread(target=self._send_loop, name="wattflow-send", daemon=True)
        self._receiver = threading.Thread(target=self._receive_loop, name="wattflow-receive", daemon=True)
        self._sender.start()
        self._receiver.start()
        _CLIENTS.add(self)

    # ---- the executor

    def submit(self, fn: Callable[..., object] | TaskFunction, /, *args: object, **kwargs: object) -> TaskFuture:
        """Run a function on the cluster; futures among the arguments are waited for there, not here.

        The function travels once: what it captures is what it captured when it was first submitted.
        """
        self._check_open()
        made = fn if isinstance(fn, TaskFunction) else TaskFunction(fn, [_PLAIN_WAY])
        call, parents = payload.dump_call(args, kwargs, TaskFuture)
        name = m.as_name(made.name, "function")
        return self._submit(
            parents, name=name, function_name=name, function=self._function(made.function), call=self._blob(call),
            python=payload.PYTHON, results=[parent.key for parent in parents], timeout_s=made.timeout_s,
            retries=made.retries, variants=[self._variant(way) for way in made.ways], isolate=made.isolate,
            estimate_s=made.estimate_s,
        )  # fmt: skip

    def run(
        self, command: list[str], *, after: list[TaskFuture] | None = None, name: str | None = None, **needs: object
    ) -> TaskFuture:
        """Run a program on the cluster."""
        self._check_open()
        # A text alone would become a program of one letter.
        if isinstance(command, str) or not command or not all(isinstance(one, str) for one in command):
            raise InvalidInput("command", f"is a list, a program and its arguments as texts, not {command!r:.80}")
        options: dict[str, Any] = {
            key: needs.pop(key) for key in ("timeout_s", "retries", "environment") if key in needs
        }
        check_retries(options.get("retries", 0))
        called = m.as_name(name or command[0], "function")
        return self._submit(after or [], name=called, function_name=called, command=list(command),
                            variants=[_way(needs, None).variant(None)], **options)  # fmt: skip

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[object], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Run a function on each item; ``chunksize`` items are one task where that is more than one."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        made = fn if isinstance(fn, TaskFunction) else TaskFunction(fn, [_PLAIN_WAY])
        if chunksize == 1 or any(way.function is not None or way.fpga for way in made.ways):
            return super().map(made, *iterables, timeout=timeout)
        rows = zip(*iterables, strict=False)
        chunks = iter(lambda: list(itertools.islice(rows, chunksize)), [])
        calls = (map(made.function, *zip(*chunk, strict=True)) for chunk in chunks)
        return itertools.chain.from_iterable(super().map(replace(made, function=list), calls, timeout=timeout))

    def get(self, dsk: Mapping[Hashable, object], keys: object, **options: object) -> object:
        """Compute keys of a Dask graph, a task each: ``dask.config.set(scheduler=client)``."""
        return compute(self, dsk, keys)

    asynchronous = False  # Dask asks

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more tasks; the workflow is sealed. Waits for the tasks unless told not to.

        ``cancel_futures`` gives up what has not started; what runs goes on to its end.
        """
        with self._lock:
            first, self._closed = not self._closed, True
            self._changed.notify_all()
        if first:
            self._queue.put(None)
        # First: what is still in the queue must be sent before the workflow is cancelled or sealed.
        self._sender.join()
        if cancel_futures and self._futures and self._broken is None:
            self._stop("?waiting=true")
        if wait:
            self._receiver.join()
        # The threads' own connections close with them; this one serves energy() even after the end.

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error in the block nobody waits for the rest, and nobody wants what runs.
        if kind is not None and self._futures and self._broken is None:
            self._give_up_unsent()
            self._stop()
        self.shutdown(wait=kind is None, cancel_futures=kind is not None)

    # ---- threads

    def _send_loop(self) -> None:
        connection = self._connect()
        sealed = False
        try:
            while not sealed:
                batch = [self._queue.get()]
                # What gathered while the last request was under way goes with this one: a map of thousands is few
                # requests.
                while len(batch) < BATCH and not self._queue.empty():
                    batch.append(self._queue.get())
                tasks = [item for item in batch if item is not None]
                sealed = len(tasks) < len(batch)
                self._send(connection, tasks, sealed)
                del batch, tasks  # large arguments are not kept until the next task comes
        except BaseException as error:
            self._break(error)
        finally:
            connection.close()

    def _send(self, connection: Connection, tasks: list[tuple[str, msgspec.Raw]], seal: bool) -> None:
        """Submit tasks. Where the server refuses them, halves are tried, so that only the bad ones fail."""
        raw: Any = [task for _, task in tasks]
        submission = m.Submission(workflow=self.workflow, tasks=raw, seal=seal, **self._about)
        try:
            if tasks or self._sent:
                connection.patiently("POST", "/v1/submissions", submission, m.Accepted, self._patience_s)
        except Denied as error:
            if not tasks or error.status in (401, 403):
                raise
            if len(tasks) == 1:
                self._fail(tasks[0][0], error)
                self._send(connection, [], seal) if seal else None
                return
            # Only the server knows which one it refuses; the good ones among thousands must not fail with it.
            half = len(tasks) // 2
            self._send(connection, tasks[:half], False)
            self._send(connection, tasks[half:], seal)
            return
        with self._lock:
            self._sent = self._sent or bool(tasks)
            self._changed.notify_all()

    def _receive_loop(self) -> None:
        connection, last = self._connect(), 0
        path = f"{self._path}/outcomes?wait_s={WAIT_S}&after="
        try:
            while self._has_more():
                answer = connection.patiently("GET", f"{path}{last}", None, m.Outcomes, self._patience_s)
                last = answer.last
                for outcome in answer.outcomes:
                    self._resolve(connection, outcome)
                del answer
        except BaseException as error:
            self._break(error)
        finally:
            connection.close()

    def _has_more(self) -> bool:
        """Wait until there is an end to wait for; False when no more can come."""
        with self._lock:
            # Not before something was sent: the workflow does not exist until then, and asking for it is an error.
            self._changed.wait_for(lambda: (self._sent and self._futures) or self._broken or self._over())
            return self._broken is None and not self._over()

    def _over(self) -> bool:
        return self._closed and not self._futures

    def _resolve(self, connection: Connection, outcome: m.Outcome) -> None:
        with self._lock:
            future = self._futures.pop(outcome.key, None)
        if future is None:
            return
        if outcome.state == "cancelled":
            concurrent.futures.Future.cancel(future)
        # Cancelled by its owner before the server knew: the result is nobody's.
        if not future.set_running_or_notify_cancel():
            return
        try:
            blob = outcome.result
            data = None if blob is None else blob.data
            if blob is not None and blob.object is not None:
                data = connection.raw("GET", f"/v1/objects/{blob.object}")[0]
            if outcome.state == "done":
                future.set_result(payload.load_result(data) if data is not None else None)
            else:
                future.set_exception(payload.load_failure(data, outcome.reason))
        except BaseException as error:
            future.set_exception(error)

    def _break(self, error: BaseException) -> None:
        """The server is gone or refuses: nobody waits for ever."""
        with self._lock:
            self._broken = error
            keys = list(self._futures)
            self._changed.notify_all()
        for key in keys:
            self._fail(key, error)

    def _fail(self, key: str, error: BaseException) -> None:
        with self._lock:
            future = self._futures.pop(key, None)
            self._changed.notify_all()
        if future is not None and future.set_running_or_notify_cancel():
            future.set_exception(error)

    # ---- small parts

    def _check_open(self) -> None:
        if _EXITING or self._closed or self._broken is not None:
            when = "interpreter shutdown" if _EXITING else "shutdown"
            raise RuntimeError(f"cannot schedule new futures after {when}") from self._broken

    def _submit(self, parents: list[TaskFuture], **about: Any) -> TaskFuture:
        """Put a task in the queue, once it is known that it can be sent."""
        if any(parent.client is not self for parent in parents):
            raise ValueError("a future of another client cannot be an argument; pass its result")
        with self._lock:
            self._number += 1
            key = str(self._number)
        try:
            data = m.pack(m.Task(key=key, parents=[parent.key for parent in parents], **about))
            # Checked here, in the caller's thread: an error at submit names the line that made it, one from the
            # server does not.
            _TASK.decode(data)
        except (msgspec.ValidationError, UnicodeEncodeError, TypeError, OverflowError) as error:
            raise InvalidInput(f"task {about['name']}", str(error)) from None
        future = TaskFuture(self, key)
        with self._lock:
            self._check_open()
            self._futures[key] = future
            self._queue.put((key, msgspec.Raw(data)))
        return future

    def _give_up_unsent(self) -> None:
        """Cancel what still waits here to be sent."""
        while not self._queue.empty():
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return
            with self._lock:
                # Never sent, so nobody else will ever tell its end.
                future = self._futures.pop(item[0], None) if item is not None else None
            if future is not None and concurrent.futures.Future.cancel(future):
                future.set_running_or_notify_cancel()

    def _connect(self) -> Connection:
        return Connection(self._server, self._token, self._ca, look=self._look)

    def _function(self, function: Callable[..., Any]) -> str:
        """The function's object; a plain function's is remembered for as long as the function lives."""
        if not isinstance(function, types.FunctionType):
            return self._upload(payload.dump_function(function))  # it may have changed since
        known = self._functions.get(function)
        if known is None:
            known = self._functions[function] = self._upload(payload.dump_function(function))
        return known

    def _variant(self, way: Way) -> m.Variant:
        if way.fpga is not None:
            from wattflow.runtime.executors.fpga.call_kernel import KernelCall

            return way.variant(self._upload(payload.dump_function(KernelCall(way.fpga))))
        return way.variant(None if way.function is None else self._function(way.function))

    def _blob(self, data: bytes) -> m.Blob:
        return m.Blob(data=data) if len(data) <= m.INLINE_BYTES else m.Blob(object=self._upload(data))

    def _upload(self, data: bytes) -> str:
        name = object_name(data)
        if name not in self._objects:  # its name is its content: putting it twice is putting it once
            self._call("POST", "/v1/objects", data)
            if len(self._objects) >= KNOWN_OBJECTS:
                self._objects.clear()
            self._objects[name] = None
        return name

    def _call(self, method: str, path: str, body: object = None) -> Any:
        with self._calling:
            return self._calls.patiently(method, path, body, for_s=self._patience_s)

    def _cancel(self, key: str) -> None:
        try:
            self._stop(f"?key={segment(key)}")
        except Denied:
            return

    def _stop(self, what: str = "") -> None:
        """Cancel the workflow, or a part; one of which nothing was sent yet is none, and no error of its own."""
        try:
            self._call("POST", f"{self._path}/cancel{what}", b"")
        except Denied as error:
            if error.status != 404:
                raise

    def _attempts(self, key: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._call("GET", f"{self._path}/attempts?key={segment(key)}")
        return rows

    def _is_running(self, key: str) -> bool:
        try:
            return any(row["outcome"] is None for row in self._attempts(key))
        except (Denied, Unreachable):  # not sent yet, or nobody to ask
            return False

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


def _given_token(file: str | None) -> str | None:
    return small_text(Path(file), "token").strip() if file else None


def joules(text: str | float) -> float:
    """``"50 Wh"``, ``"1.2 kWh"``, ``"300 kJ"`` or joules."""
    if isinstance(text, int | float):
        return float(text)
    scale = {"J": 1.0, "kJ": 1e3, "MJ": 1e6, "Wh": units.J_PER_WH, "kWh": units.J_PER_KWH, "": 1.0}
    # Also as people type it: "50kWh", "1e5".
    found = re.fullmatch(r"((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z]*)", text.strip(), re.ASCII)
    if found is None or found[2] not in scale:
        raise ValueError(f"{text!r} is not an energy; write for example '50 Wh' or '300 kJ'")
    return float(found[1]) * scale[found[2]]


@atexit.register
def _at_exit() -> None:
    """Close every client that is open, and wait for its tasks."""
    global _EXITING
    _EXITING = True
    for client in list(_CLIENTS):
        client.shutdown()


_EXITING = False
_CLIENTS: weakref.WeakSet[Client] = weakref.WeakSet()
_PLAIN_WAY = Way("cpu")
_PROVENANCE = ("measured", "attributed", "modelled", "guessed")


def compute(client: Executor, graph: Mapping[Any, Any], keys: Any) -> Any:
    """The values of keys (lists of lists of them, as Dask asks); every task that they need runs once."""
    from dask._task_spec import Alias, DataNode, convert_legacy_graph
    from dask.core import flatten
    from dask.utils import key_split

    # Newer versions of Dask hand over an expression that makes the graph.
    made = graph.__dask_graph__() if hasattr(graph, "__dask_graph__") else graph
    nodes = convert_legacy_graph(dict(made))
    known: dict[Any, Any] = {}
    wanted = list(flatten([keys]))  # type: ignore[no-untyped-call]
    for key in _parents_first(nodes, wanted):
        node = nodes[key]
        if isinstance(node, DataNode):
            known[key] = node.value
        elif isinstance(node, Alias):
            known[key] = known[node.target]
        else:
            named = TaskFunction(node, [Way("cpu")], name=str(key_split(key)))
            known[key] = client.submit(named, {parent: known[parent] for parent in node.dependencies})
    return _values(keys, known)


def _parents_first(nodes: Mapping[Any, Any], wanted: list[Any]) -> list[Any]:
    """The keys that are wanted and all that they need, each after what it needs. Graphs may be deep: no recursion."""
    ordered: dict[Any, None] = {}
    stack = [(key, False) for key in wanted]
    while stack:
        key, needs_are_in = stack.pop()
        if key in ordered:
            continue
        if needs_are_in:
            ordered[key] = None
            continue
        stack.append((key, True))
        stack += [(parent, False) for parent in sorted(nodes[key].dependencies, key=str) if parent not in ordered]
    return list(ordered)


def _values(keys: Any, known: Mapping[Any, Any]) -> Any:
    if isinstance(keys, list):
        return tuple(_values(key, known) for key in keys)
    value = known[keys]
    return value.result() if hasattr(value, "client") else value

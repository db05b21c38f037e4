"""Poison by grammar: tasks, payloads, exceptions, documents and names drawn from small alphabets of what breaks things.

Every case must end in a bounded time, in any way but one: it may not end a process that others need, nor disturb them.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trust_rig import Neighbour, calls, house, lasting
from trust_tally import Portion

from wattflow.model.errors import WattflowError
from wattflow.runtime.connection import Connection
from wattflow.runtime.home import Home
from wattflow.runtime.transport import Denied, Unreachable

LONGEST_S = 240.0
AT_ONCE = 512
"""Refusals back off for half a minute: the more cases wait side by side, the less that costs."""
ATOMS = ["", "a", "..", "../../x", "/", "\\", "\0", "\x1b[31m", "\x1b]0;t\x07", "\r\n", "\u202e", "é", "名", "😀",
         "\ud800", "\udcff", "%s%n", "{0}", "'; drop table tasks; --", "$(id)", "a" * 300, "\ufeff", "NaN", "-1",
         " "]  # fmt: skip
# What a task does, as source: it travels as such and is compiled where it runs.
DEEDS = [
    "raise {error}", "print({text}); raise {error}", "return {text}", "return {value}", "print({text})",
    "import os; os.write(1, {text}.encode('utf-8', 'surrogatepass') * 1000)", "import os; os._exit({small})",
    "import os; os.kill(os.getpid(), {signal})", "import os; os.abort()", "import sys; sys.exit({text})",
    "import os; [os.close(fd) for fd in range(3, 32) if fd != 99 and not os.set_inheritable is None]",
    "import os; [os.write(fd, b'\\0\\0\\0\\x05' + {text}.encode('utf-8', 'surrogatepass')) for fd in _sockets()]",
    "import os; [os.write(fd, b'\\xff' * 9) for fd in _sockets()]",
    "import os; [os.write(fd, _frame('{{\"ok\": false, \"reason\": \"\\\\ud800\", \"sizes\": [0]}}')) "
    "for fd in _sockets()]",
    "import os; [os.write(fd, _frame('{{\"sizes\": [-1]}}')) for fd in _sockets()]",
    "import os; [os.write(fd, _frame('[]')) for fd in _sockets()]",
    "import sys; sys.stdout = None; sys.stderr = None; raise {error}",
    "import sys; sys.setrecursionlimit(10**6); f = lambda n: f(n + 1); f(0)",
    "import os; os.fork() or __import__('time').sleep({small})", "import os; os.environ[{name}] = 'x'",
    "import threading; threading.Thread(target=lambda: __import__('time').sleep(30)).start()",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)", "import os; os.chdir('/'); os.setpgid(0, 0)",
    "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); open('/dev/null')",
    "class Odd(Exception):\n  def __init__(self, a, b): pass\n raise Odd(1, 2)",
    "class Mute(Exception):\n  def __str__(self): raise ValueError\n raise Mute()",
    "class Stay(Exception):\n  def __reduce__(self): raise ValueError\n raise Stay()",
    "class Trap:\n  def __reduce__(self): return (eval, ('1/0',))\n return Trap()",
    "return (x for x in 'abc')", "return b'x' * {large}", "return __import__('threading').Lock()",
    "return (yield)", "raise ExceptionGroup({text}, [{error}])",
]  # fmt: skip
ERRORS = ["ValueError({text})", "OSError(2, {text}, {text})", "UnicodeDecodeError('utf-8', b'\\xff', 0, 1, {text})",
          "KeyError({value})", "SystemExit({text})", "KeyboardInterrupt()", "MemoryError()", "GeneratorExit()",
          "type({name} or 'E', (Exception,), {{}})({text})", "StopIteration({value})", "AssertionError()"]  # fmt: skip
VALUES = [
    "None",
    "float('nan')",
    "10**5000",
    "{text}",
    "[[[[]]]] * 1000",
    "object()",
    "lambda: 1",
    "{{}}",
    "type('T', (), {{}})",
]
HEAD = """def deed():
 import os
 def _sockets():
  found = []
  for fd in range(3, 64):
   try:
    if os.readlink(f'/proc/self/fd/{fd}').startswith('socket:'): found.append(fd)
   except OSError: pass
  return found
 def _frame(text): return len(text).to_bytes(4, 'big') + text.encode()
 """


@dataclass(frozen=True, slots=True)
class Case:
    """One poison: its family, and what sends it and returns when it is over. ``shown`` is enough to send it again."""

    family: str
    shown: str
    send: Callable[[Any, Connection], Any]


def text(draw: random.Random) -> str:
    return "".join(draw.choice(ATOMS) for _ in range(draw.randint(0, 3)))


def filled(draw: random.Random, shape: str) -> str:
    """A shape with its holes filled."""
    holes = {"text": repr(text(draw)), "name": repr(text(draw)), "small": str(draw.randint(0, 3)),
             "large": str(draw.choice([10, 70_000, 3_000_000])),
             "signal": str(draw.choice([1, 6, 9, 11, 13, 15]))}  # fmt: skip
    holes["value"] = draw.choice(VALUES).format(**holes)
    holes["error"] = draw.choice(ERRORS).format(**holes)
    return shape.format(**holes)


def deed(draw: random.Random) -> Case:
    source = HEAD + filled(draw, draw.choice(DEEDS)).replace("\n", "\n ") + "\n"
    needs = draw.choice([{}, {}, {"memory": "300 MiB"}, {"isolate": False}, {"retries": 1}, {"timeout": 20}])

    def send(client: Any, calls: Connection) -> Any:
        import wattflow

        made: dict[str, Any] = {"__name__": "__main__"}
        exec(source, made)  # the grammar's own words
        return client.submit(wattflow.task(**{"cpus": 0.05, "timeout": 60, **needs})(made["deed"]))

    return Case("task", f"{needs} {source[len(HEAD) :]}", send)


def payload(draw: random.Random) -> Case:
    """A call that no client of ours would send."""
    data = draw.choice(
        [b"", b"\x80\x05N.", b"\x80\x05cos\n_exit\n(K\x03tR.", b"garbage", b"\x80\x05" + b"(" * 1000, b"\x80\xff"]
    )
    function = draw.choice(["stored", "missing", "garbage"])
    python = draw.choice([None, "3.11", "2.7", "9.99", "3"])
    task = {"key": "k", "name": text(draw)[:150] or "n", "call": {"data": data}, "variants": [{"cpus": 0.05}]}

    def send(client: Any, calls: Connection) -> Any:
        body = data if function == "garbage" else b"\x80\x05cbuiltins\nabs\n."
        name = calls.call("POST", "/v1/objects", body)["object"] if function != "missing" else "0" * 64
        about = task | {"function": name} | ({"python": python} if python else {})
        return raw_workflow(calls, [about], draw)

    return Case("payload", f"{function} {python} {data[:20]!r}", send)


def names(draw: random.Random) -> Case:
    """Names and numbers at the edge, in JSON as it comes over the wire (half surrogates and all)."""
    workflow = {"workflow": f"p{draw.getrandbits(40):x}{text(draw)}", "name": text(draw) or "n", "seal": True,
                "tasks": [{"key": text(draw) or "k", "name": text(draw) or "n", "function_name": text(draw) or "f",
                           "command": draw.choice([["true"], [text(draw)], ["sh", "-c", text(draw)], []]),
                           "environment": {text(draw): text(draw)}, "parents": [text(draw)] * draw.randint(0, 1),
                           "variants": [{"name": text(draw) or "v",
                                         "cpus": draw.choice([0.05, 1e-9, 1e5, 1e300, -1, "x"]),
                                         "memory_bytes": draw.choice([0, 2**60, 2**70, -5]),
                                         "gpu": draw.choice([0, 0, 0.5, 1.5, 2000])}],
                           "timeout_s": draw.choice([None, 1e-9, 30, 1e300])}]}  # fmt: skip
    body = json.dumps(workflow).encode()

    def send(client: Any, calls: Connection) -> Any:
        json_call(calls, "POST", "/v1/submissions", body)
        return Ends(calls, workflow["workflow"])

    return Case("name", body.decode()[:600], send)


def document(draw: random.Random, folder: Path) -> Case:
    """A workflow file with something wrong in it, read and submitted as `wattflow run` does."""
    whole = {"name": text(draw) or "d", "schemaVersion": "1.5", "workflow": {
        "specification": {"files": [], "tasks": [{"name": text(draw), "id": f"t{n}{text(draw)}", "parents": [],
                                                  "children": []} for n in range(2)]},
        "execution": {"makespanInSeconds": 1, "executedAt": "2024-01-01T00:00:00Z", "machines": [],
                      "tasks": []}}}  # fmt: skip
    tasks: Any = whole["workflow"]["specification"]["tasks"]  # type: ignore[index]
    ran: Any = whole["workflow"]["execution"]["tasks"]  # type: ignore[index]
    for task in tasks:
        ran.append({"id": task["id"], "runtimeInSeconds": draw.choice([0, 1, -1, 1e300, None, "x"]),
                    "command": {"program": draw.choice(["true", "", text(draw)]),
                                "arguments": [text(draw)]}})  # fmt: skip
    edge = draw.choice(["none", "chain", "self", "circle", "nowhere"])
    tasks[0]["parents"] = {"self": [tasks[0]["id"]], "circle": [tasks[1]["id"]], "nowhere": ["zz"]}.get(edge, [])
    tasks[1]["parents"] = [tasks[0]["id"]] if edge in ("chain", "circle") else []
    data = json.dumps(whole).encode("utf-8", "replace")
    data = data[: draw.choice([len(data), len(data), len(data), draw.randrange(len(data))])]

    def send(client: Any, calls: Connection) -> Any:
        from wattflow import traces
        from wattflow.runtime.facts import submissions

        path = folder / "poison.json"
        path.write_bytes(data)
        last = ""
        for submission in submissions(traces.load(str(path)).documents[0]):
            last = submission.workflow
            calls.call("POST", "/v1/submissions", submission)
        return Ends(calls, last)

    return Case("document", data.decode(errors="replace")[:600], send)


def raw_workflow(calls: Connection, tasks: list[dict[str, Any]], draw: random.Random) -> Ends:
    identity = f"p{draw.getrandbits(60):x}"
    calls.call("POST", "/v1/submissions", {"workflow": identity, "name": "poison", "seal": True, "tasks": tasks})
    return Ends(calls, identity)


def json_call(calls: Connection, method: str, path: str, body: bytes) -> bytes:
    """A call in JSON, as others' clients make it."""
    headers = dict(calls._headers)
    try:
        calls._headers["content-type"] = "application/json"
        return calls.raw(method, path, body)[0]
    finally:
        calls._headers.update(headers)


class Ends:
    """A workflow whose end is waited for, like a future."""

    def __init__(self, calls: Connection, workflow: str) -> None:
        self._calls, self._workflow = calls, workflow

    def exception(self, timeout: float) -> None:
        from urllib.parse import quote

        end_s = time.monotonic() + timeout
        path = f"/v1/workflows/{quote(self._workflow, safe='')}"
        while self._calls.call("GET", path)["state"] == "open":
            if time.monotonic() > end_s:
                raise TimeoutError
            time.sleep(0.1)


def cases(draw: random.Random, folder: Path) -> Iterator[Case]:
    """Poison without end: half of it tasks, since those run."""
    while True:
        kind = draw.choices([deed, payload, names, document], [5, 2, 2, 1])[0]
        yield document(draw, folder) if kind is document else kind(draw)  # type: ignore[operator]


def attack(home: Home, folder: Path, seed: int, count: int) -> Portion:
    """Poison a house; what ended, what was disturbed, what never ended."""
    import wattflow

    began_s, draw = time.monotonic(), random.Random(seed)
    before, neighbour = lasting(home.folder), Neighbour(home)
    neighbour.start()
    failures: list[str] = []
    families: dict[str, float] = {}
    client, connection = wattflow.Client(home.url(), home.token("user"), name="poison"), calls(home, "user")
    under_way: list[tuple[Case, Any]] = []
    source = cases(draw, folder)
    for number in range(count):
        case = next(source)
        families[case.family] = families.get(case.family, 0) + 1
        try:
            under_way.append((case, case.send(client, connection)))
        except Exception as error:
            failures += unexpected(case, error)
        if len(under_way) >= AT_ONCE or number == count - 1:
            end_s = time.monotonic() + LONGEST_S
            failures += [f"stuck: {case.family}: {case.shown}" for case, end in under_way if not ended(end, end_s)]
            under_way = []
    neighbour.stop()
    gone = {pid: kind for pid, kind in before.items() if pid not in lasting(home.folder)}
    failures += [f"ended: {kind}" for kind in gone.values()] + [f"neighbour: {said}" for said in neighbour.disturbed]
    client.__exit__(RuntimeError, None, None)
    counts = {"cases": count, "ended": len(gone), "disturbed": len(neighbour.disturbed), "neighbours": neighbour.ran,
              "stuck": sum(one.startswith("stuck") for one in failures),
              "stumbled": sum(one.startswith("stumbled") for one in failures), **families}  # fmt: skip
    return Portion(part="poison", seed=seed, took_s=time.monotonic() - began_s, counts=counts, failures=failures)


def ended(end: Any, end_s: float) -> bool:
    """Wait for an end, whichever; False where there is none by then."""
    try:
        end.exception(max(0.0, end_s - time.monotonic()))
    except TimeoutError:
        return False
    except BaseException:
        return True
    return True


def unexpected(case: Case, error: Exception) -> list[str]:
    """What a client may not be told: that the server failed, or something that is no message."""
    if isinstance(error, Unreachable):
        return [f"stumbled: {case.family}: {error}: {case.shown}"]
    told = isinstance(error, (Denied, WattflowError, TypeError, ValueError, SyntaxError, KeyError))
    return [] if told else [f"stumbled: {case.family}: {type(error).__name__}: {error}: {case.shown}"]


def portion(folder: Path, seed: int, count: int) -> Portion:
    """One portion on a server of its own."""
    with house(folder / "home", "--cpus", "4") as home:
        return attack(home, folder, seed, count)

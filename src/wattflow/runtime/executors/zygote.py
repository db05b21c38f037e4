"""A warm Python that forks one child per task. Runs as a script with nothing but the standard library.

It has one thread, loads no payload and never touches a device. Over its control socket (one message per packet, with
file descriptors) come ``fork`` requests; back go ``forked`` and ``ended`` with the child's exit status, CPU seconds
and peak memory as `os.wait4` tells them. The child reads calls from its own socket: see `serve`.

Frames on a child's socket: four bytes with the length of a header, the header (whose ``sizes`` count the blobs), the
blobs. Headers from the agent are pickled, as a child unpickles anyway; what comes back may be anybody's, and is JSON.

A child's time is pages: one that it is first to write to after the fork is copied, all that are mapped are unmapped at
its end. So every child makes plain calls of C functions, and nothing is imported here that is not needed.
"""

from __future__ import annotations

import _signal
import _socket
import contextlib
import ctypes
import importlib
import io
import os
import pickle
import resource
import select
import struct
import sys
import time
import traceback
from _json import encode_basestring_ascii
from collections.abc import Sequence
from typing import Any

LOADED: dict[str, Any] = {}
"""Functions that this zygote was told to hold ready, by name: its children find them loaded."""
PARENT = [0]
"""The zygote that forked this child: a change of user takes back that it dies with it."""
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
PRCTL = ctypes.PyDLL(None).prctl  # it never waits: letting go of the interpreter, and errno, would be pages more
HEAD, FD = struct.Struct("!I"), struct.Struct("i")
MESSAGE_BYTES = 128 * 1024
READ_BYTES = 1 << 20
MOST_FORKS = 16
"""Children that are asked for at once."""
TRACE_CHARACTERS = 16_384
_CAUGHT = (_signal.SIGCHLD, _signal.SIGINT)
"""Signals that a zygote catches and its children do not; plain numbers: names of `signal` cost a child 0.1 ms."""
REHEARSALS = 20
"""Calls before a zygote's first fork: Python has specialised what they touch by then."""
_NEEDLESS: list[dict[str, Any]] = []
"""Handlers called at a fork of a process with threads: a zygote has one, its children may have more."""
RESULT_BYTES = 1 << 30
"""Largest result that is taken: the server keeps no larger object."""


# ---- the child -----------------------------------------------------------------------------------------------------


class _Loader(pickle.Unpickler):
    """Unpickles a call; results of parents are named by their number."""

    def __init__(self, data: bytes, results: list[bytes]) -> None:
        super().__init__(io.BytesIO(data))
        self._results = results
        self._loaded: dict[int, object] = {}

    def persistent_load(self, pid: object) -> object:
        number = int(str(pid))
        if number not in self._loaded:
            self._loaded[number] = pickle.loads(self._results[number])
        return self._loaded[number]


class _Framed(io.TextIOBase):
    """Text of a worker that is used again: frames on its channel, so that it stays with the call that wrote it."""

    def __init__(self, channel: int) -> None:
        self._channel = channel

    def write(self, text: str) -> int:
        _send(self._channel, frame({"log": True}, text.encode(errors="backslashreplace")))
        return len(text)


def request(header: dict[str, Any], blobs: list[bytes]) -> bytes:
    """A call for a child, as bytes."""
    header["sizes"] = [len(blob) for blob in blobs]
    packed = pickle.dumps(header, 5)
    return b"".join((HEAD.pack(len(packed)), packed, *blobs))


def read_request(fd: int) -> tuple[dict[str, Any], list[bytes]] | None:
    """The next call, or None at the end. A task's limits and its user hold before its payload is read."""
    if (head := _exactly(fd, HEAD.size)) is None or (packed := _exactly(fd, HEAD.unpack(head)[0])) is None:
        return None
    header = pickle.loads(packed)
    if limits := header.get("limits"):
        limit(limits)
    if header.get("become") is not None and os.getuid() == 0:
        become(header["become"])
        if PARENT[0]:
            die_with(PARENT[0])  # a change of user takes the order back
    return header, [_exactly(fd, size) or b"" for size in header["sizes"]]


def _exactly(fd: int, size: int) -> bytes | None:
    """Read so many bytes; None where the channel ends before."""
    data = os.read(fd, min(size, READ_BYTES))
    if len(data) == size:
        return data
    pieces, left = [data], size - len(data)
    while left and data:
        pieces.append(data := os.read(fd, min(left, READ_BYTES)))
        left -= len(data)
    return None if left else b"".join(pieces)


def _send(fd: int, data: bytes) -> None:
    """Write all of it: a large result goes in pieces."""
    sent = os.write(fd, data)
    while sent < len(data):
        sent += os.write(fd, memoryview(data)[sent:])


def frame(header: dict[str, Any], blob: bytes) -> bytes:
    """An answer with its bytes, for the agent."""
    header["sizes"] = [len(blob)]
    text = json_of(header).encode()
    return b"".join((HEAD.pack(len(text)), text, blob))


def json_of(value: Any) -> str:
    """Plain values as JSON. The json package has a quarter of a megabyte, of which a child would touch some."""
    if isinstance(value, str):
        return str(encode_basestring_ascii(value))
    if isinstance(value, dict):
        return "{" + ", ".join([f"{json_of(name)}: {json_of(one)}" for name, one in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join([json_of(one) for one in value]) + "]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    return repr(value)


def serve(channel: int) -> None:
    """Answer calls until the channel closes. A worker that is used again sees many, others one."""
    functions = dict(LOADED)
    while (came_in := read_request(channel)) is not None:
        header, blobs = came_in
        if header["op"] == "exec":
            _exec(header)
        if header.get("keep"):
            sys.stdout = sys.stderr = _Framed(channel)
        came, cpu = time.monotonic(), time.process_time()
        began, problem = _load(header, blobs[0], functions)
        answer, result = problem or _call(header, blobs, functions)
        if len(result) > RESULT_BYTES:
            answer, result = {"ok": False, "reason": too_large(len(result))}, b""
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except Exception:  # the task closed them, or put something else there
            pass
        cpu_end = time.process_time()
        times = {"started_s": began, "ended_s": time.monotonic(), "cpu_s": cpu_end - cpu, "cpu_end_s": cpu_end}
        _send(channel, frame({**answer, **times, "id": header["id"], "load_s": began - came}, result))


Answer = tuple[dict[str, Any], bytes]


def _load(header: dict[str, Any], blob: bytes, functions: dict[str, Any]) -> tuple[float, Answer | None]:
    """Have the function at hand, and with it the modules that it names; when that was so, and what went wrong.

    This is the rest of a cold start: it is over when the call begins.
    """
    if header["python"] != PYTHON:
        reason = f"the payload was made by Python {header['python']}, this node runs {PYTHON}"
        return time.monotonic(), ({"ok": False, "refused": True, "reason": reason}, b"")
    try:
        os.environ.update(header.get("env", {}))
        if header["function"] not in functions:
            if len(functions) >= 256:
                functions.clear()
            functions[header["function"]] = pickle.loads(blob)
    except BaseException as error:
        return time.monotonic(), _failed(error)
    return time.monotonic(), None


def _call(header: dict[str, Any], blobs: list[bytes], functions: dict[str, Any]) -> Answer:
    try:
        # Without results of parents there are no references to them, and the plain loader will do.
        args, kwargs = _Loader(blobs[1], blobs[2:]).load() if len(blobs) > 2 else pickle.loads(blobs[1])
        return {"ok": True}, _dump(functions[header["function"]](*args, **kwargs))
    except BaseException as error:
        return _failed(error)


def call_once(header: dict[str, Any], blobs: list[bytes]) -> Answer:
    """Load a function and call it, in a process that does nothing else."""
    functions: dict[str, Any] = {}
    _, problem = _load(header, blobs[0], functions)
    return problem or _call(header, blobs, functions)


def too_large(size: int) -> str:
    """Say that a result cannot be kept."""
    return f"its result has {size} bytes; at most {RESULT_BYTES} are kept: write it to a file, or return parts"


def _failed(error: BaseException) -> Answer:
    """Tell what went wrong: a reason for whoever reads the answer, exception and traceback for the client."""
    with contextlib.suppress(Exception):  # the output may be closed
        traceback.print_exc()
    reason = _text(_said(error))[:2000]
    trace = _text("".join(traceback.format_exception(error)))[-TRACE_CHARACTERS:]
    return {"ok": False, "reason": reason}, pickle.dumps({"error": _portable(error), "trace": trace}, 5)


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as worse:  # a __str__ of the task's own
        return f"{type(error).__name__}: (its text raises {type(worse).__name__})"


def _text(said: str) -> str:
    """Text that every store and every terminal takes: no half of a surrogate pair, no zero byte."""
    return said.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def _portable(error: BaseException) -> bytes | None:
    """An exception as bytes that can be loaded again: whole, else in parts (class, arguments, state), else None."""
    for value in (error, (type(error), error.args, error.__dict__), (type(error), error.args, {})):
        with contextlib.suppress(Exception):
            data = _dump(value)
            pickle.loads(data)
            return data
    return None


def _dump(value: object) -> bytes:
    try:
        return pickle.dumps(value, 5)
    except Exception:
        import cloudpickle

        return bytes(cloudpickle.dumps(value, 5))


def _exec(header: dict[str, Any]) -> None:
    """Become a command; what cannot be started ends with 126 or 127 as in a shell."""
    if header.get("cwd"):
        os.chdir(header["cwd"])
    argv = header["command"]
    try:
        os.execvpe(argv[0], argv, {**os.environ, **header.get("env", {})})
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def limit(limits: dict[str, Any]) -> None:
    """Enter control groups, or set what the process itself can limit."""
    for path in limits.get("groups", ()):
        _join(path)
    _hold_in(limits.get("hold", ()))
    if limits.get("memory_bytes"):
        resource.setrlimit(resource.RLIMIT_DATA, (limits["memory_bytes"],) * 2)
    if limits.get("cpus"):
        os.sched_setaffinity(0, limits["cpus"])


def _hold_in(paths: Sequence[str]) -> None:
    """Enter control groups that limit nothing: a task runs without them, too."""
    try:
        for path in paths:
            _join(path)
    except OSError:  # no context manager: it would be pages more
        return


def _join(path: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, b"0")  # whoever writes it
    finally:
        os.close(fd)


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent does: an agent or zygote that is killed leaves nothing behind.

    A change of user takes the order back: call this after it.
    """
    PRCTL(PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the order stood
        os._exit(1)


def become(who: dict[str, Any]) -> None:
    """Become somebody else, for good."""
    os.setgroups(who["groups"])
    os.setgid(who["gid"])
    os.setuid(who["uid"])
    os.chdir(who["home"])
    os.environ["HOME"] = who["home"]
    PRCTL(PR_SET_DUMPABLE, 1, 0, 0, 0)  # else even /proc/self is root's; there is nothing secret in here


def _child(channel: int, pipe: int, parent: int, hold: list[str]) -> None:
    os.setsid()
    _signal.set_wakeup_fd(-1)
    for number in _CAUGHT:
        _signal.signal(number, _signal.SIG_DFL)
    os.dup2(pipe, 1)
    os.dup2(pipe, 2)
    os.close(pipe)
    PARENT[0] = parent
    die_with(parent)
    for calls in _NEEDLESS:
        os.register_at_fork(**calls)  # it may have threads when it forks
    _hold_in(hold)
    serve(channel)


# ---- the zygote ----------------------------------------------------------------------------------------------------


def main(control_fd: int, preload: list[str]) -> None:
    """Fork and reap until the control socket closes."""
    die_with(os.getppid())
    PRCTL(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # of all its children: no program that they run gains any privileges
    control = _socket.socket(fileno=control_fd)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    _signal.set_wakeup_fd(wake_write)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Children write through these: line by line, so that logs can be followed. Made once, they cost a child nothing.
    sys.stdout = os.fdopen(1, "w", buffering=1, errors="backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    with _plain_forks():
        for name in preload:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    with contextlib.suppress(Exception):  # a Python without cloudpickle
        _rehearse()
    import gc

    gc.collect()
    gc.freeze()
    children: dict[int, int] = {}
    _tell(control, {"op": "ready", "python": PYTHON, "pid": os.getpid()})
    while True:
        readable: list[Any] = select.select([control.fileno(), wake_read], [], [])[0]
        if wake_read in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_read, 4096)
            _reap(control, children)
        if control.fileno() in readable:
            try:
                data, fds = _order(control)
            except ConnectionResetError:
                break
            if not data:
                break
            order = pickle.loads(data)
            if order["op"] == "load":
                _hold(control, order["function"], fds)
                continue
            _fork_all(control, (wake_read, wake_write), order["children"], fds, children)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, _signal.SIGKILL)


def _order(control: _socket.socket) -> tuple[bytes, list[int]]:
    """The next order of the agent's, with the file descriptors that came with it; empty at the end."""
    data, told, _, _ = control.recvmsg(MESSAGE_BYTES, _socket.CMSG_LEN(2 * MOST_FORKS * FD.size))
    return data, [fd for _, _, packed in told for (fd,) in FD.iter_unpack(packed)]


def _fork_all(
    control: _socket.socket, wakes: tuple[int, int], wanted: list[Any], fds: list[int], children: dict[int, int]
) -> None:
    """Fork so many children, each with a channel and a log pipe of its own; then tell of all of them at once.

    After a fork the first write to any page copies it, here too, so nothing else is done between two forks.
    """
    parent, pids = os.getpid(), []
    for place in range(len(wanted)):
        if (pid := os.fork()) == 0:
            status = 1
            try:
                for fd in (*wakes, control.detach(), *fds[: 2 * place], *fds[2 * place + 2 :]):
                    os.close(fd)
                _child(fds[2 * place], fds[2 * place + 1], parent, wanted[place][1])
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        pids.append(pid)
    for fd in fds:
        os.close(fd)
    numbers = [number for number, _ in wanted]
    children.update(zip(pids, numbers, strict=True))
    _tell(control, {"op": "forked", "children": list(zip(numbers, pids, strict=True))})


@contextlib.contextmanager
def _plain_forks() -> Any:
    """Leave out what `threading` and `logging` do at each fork: they mend locks that other threads may hold, and a
    zygote has none. It costs each child 150 pages of its own, a quarter of all."""
    register = os.register_at_fork

    def unless_needless(**calls: Any) -> None:
        needless = all(call.__module__ in ("threading", "logging") for call in calls.values())
        _NEEDLESS.append(calls) if needless else register(**calls)

    os.register_at_fork = unless_needless
    try:
        yield
    finally:
        os.register_at_fork = register


def _rehearse() -> None:
    """Answer calls here as a child will. Python rewrites functions while they are new; a child that is first to call
    them would have to copy their pages for it."""
    ours, theirs = _socket.socketpair()
    call = [_dump(lambda *args: args), _dump(((0,), {}))]
    for number in range(REHEARSALS):
        about = {"op": "call", "id": 0, "python": PYTHON, "function": str(number), "env": {}, "limits": {}}
        ours.sendall(request({**about, "become": None}, call))
    ours.shutdown(_socket.SHUT_WR)
    serve(theirs.fileno())
    ours.close()
    theirs.close()


def _hold(control: _socket.socket, name: str, fds: list[int]) -> None:
    """Load a function into this zygote, for all its children to come."""
    began = time.monotonic()
    try:
        with os.fdopen(fds[0], "rb") as file:
            LOADED[name] = pickle.loads(file.read())
        reason = _unfit()
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"[:500]
    import gc

    gc.collect()
    gc.freeze()
    seconds = time.monotonic() - began
    _tell(control, {"op": "loaded", "function": name, "seconds": seconds, "reason": reason})


def _unfit() -> str | None:
    """Say what forbids to fork this process now that a function's modules are in it; None where nothing does."""
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return "its modules start threads, which a fork would leave behind"
    for fd in os.listdir("/proc/self/fd"):  # noqa: PTH208 (pathlib is not loaded here)
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith(("/dev/nvidia", "/dev/kfd")):  # noqa: PTH115
                return "its modules open a GPU, which a fork would break"
    return None


def _reap(control: _socket.socket, children: dict[int, int]) -> None:
    while children:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        number = children.pop(pid, None)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, _signal.SIGKILL)  # what the child left behind ends with it
        if number is not None:
            _tell(control, {
                "op": "ended", "id": number, "status": os.waitstatus_to_exitcode(status),
                "cpu_s": usage.ru_utime + usage.ru_stime, "peak_bytes": usage.ru_maxrss * 1024,
            })  # fmt: skip


def _tell(control: _socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        control.sendall(json_of(message).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

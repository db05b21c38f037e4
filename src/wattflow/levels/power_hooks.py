"""How machines are put to sleep and woken: any command, or a magic packet. Slurm's own power saving is its driver's.

A command is given as one text; ``{node}`` in it is the node's name. It is split like a shell would and run without one.
"""

from __future__ import annotations

import asyncio
import functools
import re
import shlex
import socket
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from wattflow.model.errors import InvalidInput, WattflowError

LONGEST_S = 60.0
WAKE_PORT = 9
_MOST_AT_ONCE = 256
"""Commands: a load that rises wakes many machines together, and each may take half a minute to answer."""
_MAC = re.compile(r"[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}")


class HookFailed(WattflowError):
    """A machine could not be told."""


class PowerHook(Protocol):
    """Tells machines to sleep and to wake."""

    def covers(self, node: str) -> bool:
        """Say whether this node can be told."""

    async def suspend(self, node: str) -> None:
        """Put it to sleep. Raises HookFailed."""

    async def resume(self, node: str) -> None:
        """Begin to wake it. Raises HookFailed."""

    async def watts(self, node: str) -> float | None:
        """Read what it draws now, as somebody outside it sees; None where nobody does. Raises HookFailed."""


class CommandHook:
    """Sleep and waking by commands: ``ssh {node} systemctl suspend``, ``ipmitool -H {node}-bmc power on``.

    Args:
        watts: Prints what a machine draws; the first number in its output counts.
        longest_s: A command that takes longer is ended, and has failed.
    """

    def __init__(self, suspend: str, resume: str, watts: str | None = None, longest_s: float = LONGEST_S) -> None:
        self._suspend, self._resume = _words("--suspend-command", suspend), _words("--resume-command", resume)
        self._watts = _words("--watts-command", watts) if watts is not None else None
        self._longest_s = longest_s

    def covers(self, node: str) -> bool:
        """Every node."""
        return True

    async def suspend(self, node: str) -> None:
        """Run the one command."""
        await _run(self._suspend, node, self._longest_s)

    async def resume(self, node: str) -> None:
        """Run the other."""
        await _run(self._resume, node, self._longest_s)

    async def watts(self, node: str) -> float | None:
        """Run the third, where there is one."""
        return _number(await _run(self._watts, node)) if self._watts is not None else None


class WakeOnLan:
    """Sleep by a command, waking by a magic packet (the hardware address sixteen times, after six bytes of ones).

    Args:
        addresses: Hardware addresses by node.
        broadcast: Where packets are sent.
    """

    def __init__(
        self,
        suspend: str,
        addresses: Mapping[str, str],
        broadcast: str = "255.255.255.255",
        port: int = WAKE_PORT,
        watts: str | None = None,
    ) -> None:
        self._suspend = _words("--suspend-command", suspend)
        self._watts = _words("--watts-command", watts) if watts is not None else None
        self._packets = {node: magic_packet(address) for node, address in addresses.items()}
        self._target = (broadcast, port)

    def covers(self, node: str) -> bool:
        """Nodes whose address is known."""
        return node in self._packets

    async def suspend(self, node: str) -> None:
        """Run the command."""
        await _run(self._suspend, node)

    async def resume(self, node: str) -> None:
        """Send the packet."""
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                sender.sendto(self._packets[node], self._target)
        except OSError as error:
            raise HookFailed(f"no packet could be sent to {self._target[0]}: {error.strerror}") from None

    async def watts(self, node: str) -> float | None:
        """Run the command for it, where there is one."""
        return _number(await _run(self._watts, node)) if self._watts is not None else None


def magic_packet(address: str) -> bytes:
    """Make what a sleeping network card waits for."""
    if not _MAC.fullmatch(address):
        raise InvalidInput("--wake-on-lan", f"{address!r} is not a hardware address such as 3c:ec:ef:12:34:56")
    return b"\xff" * 6 + bytes.fromhex(re.sub("[:-]", "", address)) * 16


def _words(option: str, text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidInput(option, f"{text!r}: {error}") from None
    if not words:
        raise InvalidInput(option, "names no command")
    return words


def _number(text: str) -> float:
    found = re.search(r"\d+(\.\d+)?", text)
    if found is None:
        raise HookFailed(f"no number in {text[:80]!r}")
    return float(found[0])


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST_AT_ONCE, "power-hook")


def _finish(process: subprocess.Popen[bytes], longest_s: float) -> tuple[bytes, bytes]:
    try:
        return process.communicate(timeout=longest_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise


async def _run(words: list[str], node: str, longest_s: float = LONGEST_S) -> str:
    """Run a command to its end; returns what it printed."""
    command = [word.replace("{node}", node) for word in words]
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    except OSError as error:
        raise HookFailed(f"{command[0]}: {error.strerror or error}") from None
    # In a thread: who is cancelled while asyncio starts or ends a process of its own may wait for ever. Shielded, so
    # that the thread always comes to read the pipes to their end.
    ended = asyncio.get_running_loop().run_in_executor(_threads(), _finish, process, longest_s)
    try:
        printed, told = await asyncio.shield(ended)
    except subprocess.TimeoutExpired:
        raise HookFailed(f"{shlex.join(command)}: took longer than {longest_s:g} s") from None
    finally:
        process.kill()  # we are told to end: nobody would wait for it; nothing where it has ended
    if process.returncode:
        said = told.decode(errors="replace").strip().splitlines()[-1:] or [f"status {process.returncode}"]
        raise HookFailed(f"{shlex.join(command)}: {said[0]}")
    return printed.decode(errors="replace")

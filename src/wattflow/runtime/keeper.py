"""`python -m wattflow.runtime.keeper MARK COMMAND…`: runs a command and starts it again whenever it ends.

`wattflow up` runs its agent below one; systemd does the same for others (`deploy/systemd`). Told to end, it ends the
command first. Where the keeper itself is killed the command works on, and the next `up` or `down` finds it by its own
mark.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from wattflow.runtime import processes
from wattflow.runtime.tidying import trim_own_log

log = logging.getLogger(__name__)
FIRST_S, LONGEST_S = 0.5, 30.0
"""Waits before the command is started again: doubled each time, begun anew after a life of twice the longest."""
PATIENCE_S = 10.0


class Told(BaseException):
    """Somebody wants the keeper to end."""


def _told(*_: object) -> None:
    raise Told


def keep(command: list[str]) -> None:
    """Run the command again and again, until told to end."""
    wait_s = FIRST_S
    while True:
        began_s = time.monotonic()
        # Not detached: the service manager that ends the keeper's group ends its command with it.
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            status = child.wait()
        except Told:
            _end(child)
            raise
        # Waits begin anew only after a good life: one that fails at each start is not tried every half second for
        # ever.
        if time.monotonic() - began_s > 2 * LONGEST_S:
            wait_s = FIRST_S
        log.warning("it ended with %d; started again in %g s", status, wait_s)
        trim_own_log()
        time.sleep(wait_s)
        wait_s = min(LONGEST_S, 2 * wait_s)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def main(path: Path, command: list[str]) -> int:
    """Keep a command running; its mark says so."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s keeper: %(message)s")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _told)
    try:
        processes.mark(path, os.getpid(), command=command)
        keep(command)
    except Told:
        for number in (signal.SIGTERM, signal.SIGINT):
            # A second signal while the command is being ended must not leave it behind.
            signal.signal(number, signal.SIG_IGN)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))

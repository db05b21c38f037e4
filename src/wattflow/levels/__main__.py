"""The watchdog: gives back the levels that a process held when it is gone without doing so.

    python -m wattflow.levels FOLDER PID STARTED

It waits on the process's file descriptor, so it wakes within milliseconds of a SIGKILL, whatever that process's
children inherited. It has a session of its own and outlasts SIGTERM and SIGINT: a service manager that ends the whole
group ends the process first, and then there is something to give back.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
from pathlib import Path

from wattflow.levels.actuators import find_actuators
from wattflow.levels.holder import DEAF_TO, Holder, started

log = logging.getLogger(__name__)


def wait_for_end(pid: int, began: str) -> None:
    """Return when a process is gone, at once where it is already."""
    try:
        # A descriptor names the process itself: a number that is used again later cannot be mistaken for
        # it.
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # The number may have been used again before the descriptor was opened.
        if started(pid) == began:
            select.select([handle], [], [])
    finally:
        os.close(handle)


def main() -> None:
    """Wait for a process's end, then give back whatever it held."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    signal.pthread_sigmask(signal.SIG_BLOCK, DEAF_TO)  # as whoever started it did before
    folder, pid, began = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    actuators = find_actuators()
    wait_for_end(pid, began)
    # A new Holder gives back what processes that are gone have left: exactly what there is to do.
    holder = Holder(actuators, folder, watched=False)
    left = [note.knob for note in holder.notes.all() if not note.held]
    if left:
        log.error("process %d ended and left %s; not given back", pid, ", ".join(left))
    holder.close()


if __name__ == "__main__":
    main()

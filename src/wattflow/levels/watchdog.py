"""The process that outlives one that sets levels, started and kept up from there.

`wattflow.levels.__main__` is what it runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from wattflow.levels.notes import started

DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(slots=True)
class Watchdog:
    """Starts the watchdog of this process, and starts it again where it was killed."""

    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Have one running."""
        if self._process is not None and self._process.poll() is None:
            return
        command = [sys.executable, "-m", "wattflow.levels", str(self.folder.absolute()), str(os.getpid())]
        # Blocked signals stay blocked in the child, from its first instruction on: a SIGTERM to the whole group must
        # not find it half started.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, DEAF_TO)
        try:
            self._launch(command)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _launch(self, command: list[str]) -> None:
        with (self.folder / "watchdog.log").open("ab") as out:
            self._process = subprocess.Popen(
                [*command, started(os.getpid()) or ""],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=out,
                # A session of its own: Ctrl-C and a hang-up go to the whole foreground group.
                start_new_session=True,
            )

    def stop(self) -> None:
        """End it: there is nothing left to give back."""
        if self._process is not None:
            # It ignores SIGTERM on purpose (`DEAF_TO`).
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int | None:
        """Return the watchdog's number, where one was started."""
        return None if self._process is None else self._process.pid

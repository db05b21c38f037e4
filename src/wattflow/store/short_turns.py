"""Short turns on a processor, for a thread that others wait for.

Linux gives threads turns of some 3 ms, and one that wakes up (its data are on disk, say) waits until the one that runs
there has had its turn. Since 6.12 a thread may ask for shorter turns, and then it is let in at once; its share of the
processor stays what it was, and no right is needed. Older kernels take no notice.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

TURN_S = 1e-4
"""The shortest that the kernel gives."""
CALLS = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""Number of `sched_setattr`, which the C library does not offer."""
PR_SET_TIMERSLACK = 29
SLACK_NS = 1000
"""How late a timer may ring; 50 µs if nobody asks. A thread waits for the interpreter by a timer."""


def ask_for_short_turns() -> bool:
    """For this thread and what it starts, from now on; False where that cannot be asked for."""
    call = CALLS.get(platform.machine())
    if not sys.platform.startswith("linux") or call is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, int(TURN_S * 1e9), 0, 0)
    kernel = ctypes.CDLL(None)
    kernel.prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0)
    return bool(kernel.syscall(call, 0, wanted, 0) == 0)

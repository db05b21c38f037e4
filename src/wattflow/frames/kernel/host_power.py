"""Joules of hosts, with the simulator's arithmetic: close the interval before each change, then set the new watts."""

from __future__ import annotations

from wattflow.frames.kernel.frame_tables import (
    BOOTING,
    BUSY_CORE_S,
    DOWN,
    DRAINING,
    MICRO,
    NOW,
    OFF,
    ON,
    PEAK_W,
    TOTAL_W,
)
from wattflow.frames.kernel.jit import jit
from wattflow.kernel.power_curve import SLEEP_J, WAKE_J, book, curve_w


@jit
def watts(s, h, busy):
    """P(k) of a host with ``busy`` hardware threads busy."""
    if busy > s.h_threads[h]:
        busy = s.h_threads[h]
    return curve_w(s.grid, s.h_grid[h], s.h_grid_n[h], busy * s.h_per_core[h])


@jit
def account(s, h):
    """Close the interval since the host's last change: each joule into exactly one account."""
    now = s.f[NOW]
    dt = now - s.h_since[h]
    # Several changes in one instant: there is nothing between them.
    if dt <= 0.0:
        return
    state = s.h_state[h]
    if state in (ON, DRAINING):
        busy = s.h_busy[h]
        s.h_integral[h] += book(s.energy, h, s.h_idle_w[h], s.h_dynamic[h], busy, 0, dt)
        if busy > 0:
            s.f[BUSY_CORE_S] += busy * dt / MICRO
    elif state == OFF:
        s.energy[h, SLEEP_J] += s.h_off_w[h] * dt
    elif state == BOOTING:
        s.energy[h, WAKE_J] += s.h_boot_w[h] * dt
    s.h_since[h] = now


@jit
def refresh(s, h):
    """Set the host's watts from what it does now; call after `account` and the change."""
    state = s.h_state[h]
    now_w = 0.0
    if state in (ON, DRAINING):
        dynamic = 0.0
        # In whole millionths, so that an idle host's sum is exactly 0.
        if s.h_busy[h] > 0:
            dynamic = watts(s, h, s.h_busy[h] / MICRO) - s.grid[s.h_grid[h]]
        s.h_dynamic[h] = dynamic
        now_w = s.h_idle_w[h] + dynamic
    elif state == OFF:
        now_w = s.h_off_w[h]
    elif state == BOOTING:
        now_w = s.h_boot_w[h]
    # By difference, so that the cluster's watts cost O(1) at each change.
    s.f[TOTAL_W] += now_w - s.h_watts[h]
    s.h_watts[h] = now_w
    s.f[PEAK_W] = max(s.f[PEAK_W], s.f[TOTAL_W])


@jit
def added_w(s, h, need):
    """Return watts that one more attempt of these cores adds to the host as it is allocated now."""
    before = s.h_used[h] / MICRO
    return watts(s, h, before + need / MICRO) - watts(s, h, before)


@jit
def set_state(s, h, state):
    """Switch a host to another power state."""
    account(s, h)
    s.h_state[h] = state
    refresh(s, h)


@jit
def is_up(s, h):
    """Tell whether attempts can run on the host."""
    return s.h_state[h] != DOWN and s.h_state[h] != OFF and s.h_state[h] != BOOTING

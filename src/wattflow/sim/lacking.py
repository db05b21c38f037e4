"""Which parts of the code a simulation can never need, by what its tables hold at the start.

The kernel compiled without them is smaller, quicker to compile and quicker to run. Whatever is asked here cannot change
during a run: an event may only come of what is in the tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wattflow.engine.parts import LIVE, RICH
from wattflow.engine.tables import BEST_PAIR, EASY, NO_DEVICE, ON, State
from wattflow.sim.world import World


def parts(state: State, world: World) -> tuple[str, ...]:
    """Return the parts that a simulation lacks: all that can be lacked or none, so that two kernels serve everybody."""
    if len(state.marks) > 1 or len(state.boards) > 0 or not _is_plain(state, world):
        return ()
    return LIVE, RICH


def _is_plain(state: State, world: World) -> bool:
    """CPU tasks of one part on nodes that are always on, without data, containers or failures; any order and score."""
    return (
        _asks_nothing_special(state.rules[0])
        and _shapes_are_plain(state)
        and _nodes_are_plain(state, world)
        and _world_is_plain(world)
        # Outages that were asked for stand in the agenda before the first event.
        and state.counts.timer_n[0] == 0
    )


def _asks_nothing_special(rules: Any) -> bool:
    switches = (
        "has_act",
        "has_data",
        "cold",
        "limits",
        "tainted",
        "wishes",
        "pods",
        "samples",
        "dynamic",
        "alike",
        "parks",
    )
    return not any(rules[name] for name in switches) and rules.queue != EASY and rules.selection != BEST_PAIR


def _shapes_are_plain(state: State) -> bool:
    shapes, variants, functions = state.shapes, state.variants, state.functions
    return bool(
        np.all(shapes.parts == 1)
        and not np.any(shapes.constraint)
        and not np.any(shapes.counted)
        and np.all(variants.device == NO_DEVICE)
        and not np.any(variants.counts_n)
        and not np.any(functions.cold_start_s)
        and not np.any(functions.failure_rate)
        and not np.any(functions.checkpoint_s)
    )


def _nodes_are_plain(state: State, world: World) -> bool:
    classes = state.classes
    return bool(
        not np.any(state.nodes.device_n)
        and np.all(state.nodes.power_state == ON)
        and not np.any(classes.serverless)
        and np.all(np.isinf(classes.sleep_after_s))
        and np.all(np.isinf(classes.mtbf_s))
        and np.all(np.isinf(classes.limit_s))
        and np.all(world.nodes.lane_first < 0)
    )


def _world_is_plain(world: World) -> bool:
    pulse = world.pulse[0]
    nothing_planned = len(world.task_faults) == 0
    return bool(nothing_planned and len(world.saved) == 1 and pulse.message_s <= 0.0 and pulse.ramps == 0)

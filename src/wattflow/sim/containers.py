"""Warm containers: idle ones are linked per node (newest first) and per function."""

from __future__ import annotations

from wattflow.engine import groups
from wattflow.engine.jit import jit


@jit
def drop(state, c):
    """Unlink an idle container and free its row."""
    t = state.containers
    node = t.node[c]
    fn = t.function[c]
    if t.previous_node[c] >= 0:
        t.next_node[t.previous_node[c]] = t.next_node[c]
    else:
        state.nodes.first_container[node] = t.next_node[c]
    if t.next_node[c] >= 0:
        t.previous_node[t.next_node[c]] = t.previous_node[c]
    if t.previous_function[c] >= 0:
        t.next_function[t.previous_function[c]] = t.next_function[c]
    else:
        state.functions.first_container[fn] = t.next_function[c]
    if t.next_function[c] >= 0:
        t.previous_function[t.next_function[c]] = t.previous_function[c]
    t.next_node[c] = state.clock.free_container[0]
    state.clock.free_container[0] = c


@jit
def _purge(state, node):
    """Forget the node's containers that are past their keep-alive."""
    oldest = state.clock.now[0] - state.classes.keep_alive_s[state.nodes.cls[node]]
    c = state.nodes.first_container[node]
    last = -1
    while c >= 0:
        after = state.containers.next_node[c]
        if state.containers.idle_since[c] <= oldest:
            drop(state, c)
        else:
            last = c
        c = after
    return last


@jit
def keep(state, node, fn):
    """A container of the function becomes idle on the node now."""
    if state.classes.keep_alive_s[state.nodes.cls[node]] <= 0.0:
        return
    oldest = _purge(state, node)
    if state.clock.free_container[0] < 0:
        if oldest < 0:
            return
        drop(state, oldest)
    t = state.containers
    c = state.clock.free_container[0]
    state.clock.free_container[0] = t.next_node[c]
    t.node[c] = node
    t.function[c] = fn
    t.idle_since[c] = state.clock.now[0]
    t.previous_node[c] = -1
    t.next_node[c] = state.nodes.first_container[node]
    if t.next_node[c] >= 0:
        t.previous_node[t.next_node[c]] = c
    state.nodes.first_container[node] = c
    t.previous_function[c] = -1
    t.next_function[c] = state.functions.first_container[fn]
    if t.next_function[c] >= 0:
        t.previous_function[t.next_function[c]] = c
    state.functions.first_container[fn] = c


@jit
def load_device(state, node, device, fn):
    """Another function's kernel goes into an FPGA."""
    groups.leave(state, node)
    state.devices.loaded[device] = fn
    state.nodes.device_key[node] = groups.device_key(state, node)
    groups.rejoin(state, node)

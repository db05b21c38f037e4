"""Warm containers: idle ones are linked per node and per function, newest first; hot ones serve any function."""

from __future__ import annotations

from wattflow.engine import groups
from wattflow.engine.parts import RICH
from wattflow.engine.tables import HOT
from wattflow.kernel.jit import inner, optional


@inner
def _first(state, fn):
    """Return the newest idle container of a function, or of those that serve any."""
    return state.counts[0].hot_container if fn == HOT else state.functions[fn].first_container


@inner
def _set_first(state, fn, c):
    if fn == HOT:
        state.counts[0].hot_container = c
    else:
        state.functions[fn].first_container = c


@optional(RICH)
def drop(state, c):
    """Unlink an idle container and free its row."""
    container = state.containers[c]
    counts = state.counts[0]
    node = container.node
    fn = container.function
    if container.previous_node >= 0:
        state.containers[container.previous_node].next_node = container.next_node
    else:
        state.nodes[node].first_container = container.next_node
    if container.next_node >= 0:
        state.containers[container.next_node].previous_node = container.previous_node
    if container.previous_function >= 0:
        state.containers[container.previous_function].next_function = container.next_function
    else:
        _set_first(state, fn, container.next_function)
    if container.next_function >= 0:
        state.containers[container.next_function].previous_function = container.previous_function
    # Free rows are linked by ``next_node``, as `build.container_table` made them.
    container.next_node = counts.free_container
    counts.free_container = c


@inner
def _purge(state, node):
    """Forget the node's containers that are past their keep-alive."""
    node_row = state.nodes[node]
    oldest = state.clock[0].now - state.classes[node_row.cls].keep_alive_s
    c = node_row.first_container
    last = -1
    while c >= 0:
        # Read before `drop`, which puts the row's link to other use.
        after = state.containers[c].next_node
        # At exactly its keep-alive it is gone, as `view.find_container` counts.
        if state.containers[c].idle_since <= oldest:
            drop(state, c)
        else:
            # The list is newest first, so the last one that is kept is the oldest.
            last = c
        c = after
    return last


@optional(RICH)
def keep(state, node, fn):
    """Add a container of the function (or HOT) that becomes idle on the node now."""
    node_row = state.nodes[node]
    clock = state.clock[0]
    counts = state.counts[0]
    if state.classes[node_row.cls].keep_alive_s <= 0.0:
        return
    oldest = _purge(state, node)
    if counts.free_container < 0:
        # No row is free: the node's oldest container makes way. Where it has none,
        # the new one is not kept; that costs a cold start later and nothing else.
        if oldest < 0:
            return
        drop(state, oldest)
    c = counts.free_container
    container = state.containers[c]
    counts.free_container = container.next_node
    container.node = node
    container.function = fn
    container.idle_since = clock.now
    container.previous_node = -1
    container.next_node = node_row.first_container
    if container.next_node >= 0:
        state.containers[container.next_node].previous_node = c
    node_row.first_container = c
    container.previous_function = -1
    container.next_function = _first(state, fn)
    if container.next_function >= 0:
        state.containers[container.next_function].previous_function = c
    _set_first(state, fn, c)


@inner
def keep_since(state, node, fn, idle_since):
    """Restore a container that has been idle for a while to its old place among the others."""
    keep(state, node, fn)
    c = state.nodes[node].first_container
    # `keep` may have kept none (no keep-alive, no row): then the first of the list is another's.
    if c < 0 or state.containers[c].function != fn or state.containers[c].idle_since < state.clock[0].now:
        return
    state.containers[c].idle_since = idle_since
    while True:  # lists are newest first: let the newer ones pass
        after = state.containers[c].next_node
        if after < 0 or state.containers[after].idle_since <= idle_since:
            break
        _pass_on_node(state, c, after)
    while True:
        after = state.containers[c].next_function
        if after < 0 or state.containers[after].idle_since <= idle_since:
            break
        _pass_of_function(state, c, after)


@inner
def _pass_on_node(state, c, after):
    """Swap a container with the next one of its node."""
    first = state.containers[c]
    second = state.containers[after]
    before = first.previous_node
    if before >= 0:
        state.containers[before].next_node = after
    else:
        state.nodes[first.node].first_container = after
    if second.next_node >= 0:
        state.containers[second.next_node].previous_node = c
    first.next_node = second.next_node
    second.previous_node = before
    second.next_node = c
    first.previous_node = after


@inner
def _pass_of_function(state, c, after):
    """Swap a container with the next one of its function."""
    first = state.containers[c]
    second = state.containers[after]
    before = first.previous_function
    if before >= 0:
        state.containers[before].next_function = after
    else:
        _set_first(state, first.function, after)
    if second.next_function >= 0:
        state.containers[second.next_function].previous_function = c
    first.next_function = second.next_function
    second.previous_function = before
    second.next_function = c
    first.previous_function = after


@inner
def forget(state, node, fn):
    """Drop all idle containers of a function on a node."""
    c = state.nodes[node].first_container
    while c >= 0:
        after = state.containers[c].next_node
        if state.containers[c].function == fn:
            drop(state, c)
        c = after


@inner
def load_device(state, node, device, fn):
    """Load another function's kernel into an FPGA."""
    groups.leave(state, node)
    state.devices[device].loaded = fn
    state.nodes[node].device_key = groups.device_key(state, node)
    groups.rejoin(state, node)

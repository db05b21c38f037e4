"""Questions of a policy about functions and their containers: that part of the public page `view`."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from wattflow.engine.tables import HOT as ANY_FUNCTION
from wattflow.policy.jit import jit


@jit
def container_start_s(state, fn):
    """Return seconds that a container of the function takes to make, before a node's own factor."""
    return state.functions[fn].cold_start_s


@jit
def function_running(state, fn):
    """Count attempts of the function under way."""
    return state.functions[fn].running


@jit
def function_arrived(state, fn):
    """Count tasks of the function that became ready so far, tries after the first among them."""
    return state.functions[fn].started + state.functions[fn].waiting


@jit
def function_waiting(state, fn):
    """Count tasks of the function in the queue."""
    return state.functions[fn].waiting


@jit
def keep_alive_s(state, node):
    """Return seconds that the node keeps an idle container."""
    return state.classes[state.nodes[node].cls].keep_alive_s


@jit
def cold_factor(state, node):
    """Return how much longer containers take on this node."""
    return state.classes[state.nodes[node].cls].cold_factor


@jit
def idle_containers(state, fn):
    """Count containers of a function (or of ANY_FUNCTION) that wait, on all nodes, and are not too old."""
    count = 0
    c = state.counts[0].hot_container if fn == ANY_FUNCTION else state.functions[fn].first_container
    while c >= 0:
        # As `containers` and `view.find_container` count: at exactly its keep-alive a container is gone.
        if state.containers[c].idle_since > state.clock[0].now - keep_alive_s(state, state.containers[c].node):
            count += 1
        c = state.containers[c].next_function
    return count


@jit
def spare_containers(state, node, fn):
    """Count idle containers of a function on a node that no task placed in this instant will take."""
    row = state.nodes[node]
    spare = 0
    c = row.first_container
    oldest = state.clock[0].now - state.classes[row.cls].keep_alive_s
    while c >= 0:
        if state.containers[c].function == fn and state.containers[c].idle_since > oldest:
            spare += 1
        c = state.containers[c].next_node
    if spare > 0:
        # Placed in this instant and not begun: they have taken no container yet, but will.
        for i in range(state.counts[0].placed_n):
            attempt = state.attempts[state.placed[i]]
            if attempt.node == node and state.shapes[state.tasks[attempt.task].form].function == fn:
                spare -= 1
    return spare

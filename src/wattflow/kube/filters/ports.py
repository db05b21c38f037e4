"""Host ports: which a pod takes, and when two collide."""

from __future__ import annotations

from collections.abc import Iterable

from wattflow.kube import objects

Port = tuple[str, str, int]
"""Address, protocol, port; the address 0.0.0.0 means all."""
_ALL = "0.0.0.0"


def host_ports(pod: objects.Pod) -> tuple[Port, ...]:
    """Host ports of containers and sidecars, without repeats."""
    # Init containers that end before the others start hold no port by then; sidecars do.
    sidecars = [one for one in pod.spec.init_containers if one.restart_policy == "Always"]
    found = {
        # A dict as an ordered set: two containers may name one port.
        (port.host_ip or _ALL, port.protocol or "TCP", port.host_port): None
        for container in (*pod.spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    }
    return tuple(found)


def collide(wanted: Port, used: Port) -> bool:
    """Tell whether both cannot stand on one node."""
    same = wanted[1:] == used[1:]
    return same and (wanted[0] == used[0] or _ALL in (wanted[0], used[0]))


def free(wanted: Iterable[Port], used: Iterable[Port]) -> bool:
    """Tell whether none of the wanted ports collides with one in use."""
    taken = tuple(used)
    return not any(collide(port, other) for port in wanted for other in taken)

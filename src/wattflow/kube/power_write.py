"""A measured curve as the NodePowerProfile of a node."""

from __future__ import annotations

from wattflow.kube import objects
from wattflow.kube.access import Access
from wattflow.kube.client import ApiError, Client
from wattflow.kube.power import GROUP
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile

APPLY = "application/apply-patch+yaml"


def document(node: str, curve: PowerProfile) -> dict[str, object]:
    """Make the object, named as its node."""
    spec = {
        "nodes": [node],
        "busy": list(curve.busy),
        "watts": list(curve.watts),
        "scope": curve.scope.value,
        "provenance": curve.provenance.value,
        "source": curve.source,
    }
    return {"apiVersion": "wattflow.io/v1alpha1", "kind": "NodePowerProfile", "metadata": {"name": node}, "spec": spec}


async def write_profile(where: Access, node: str, curve: PowerProfile) -> None:
    """Make the object, or replace what we wrote before; other keys, such as a cap, stay.

    Raises:
        InvalidInput: the cluster has no such node, or no NodePowerProfile.
    """
    async with Client(where) as client:
        try:
            await client.get(f"/api/v1/nodes/{node}", objects.Node)
        except ApiError as error:
            raise InvalidInput(f"--kube {node}", f"the node cannot be read: {error}") from None
        # Server-side apply owns only the keys that are sent, so an operator's `capW` stays; `force` takes
        # over keys that somebody edited by hand, since a measurement is newer.
        query = {"fieldManager": "wattflow-profile", "force": "true"}
        try:
            await client.call("PATCH", f"{GROUP}/{node}", document(node, curve), query=query, content=APPLY)
        except ApiError as error:
            hint = "; apply deploy/base first" if error.code == 404 else ""
            raise InvalidInput(f"--kube {node}", f"the profile was not taken: {error}{hint}") from None

"""A lease with its bytes brought together, and results brought home, for drivers without agents."""

from __future__ import annotations

from wattflow.runtime import messages as m
from wattflow.runtime.executors.once import Errand
from wattflow.store.objects import Objects


def errand_of(lease: m.Lease, objects: Objects) -> Errand:
    """The lease and everything that its call needs."""
    spec = lease.spec
    function = spec.variants[lease.variant].function or spec.function
    if function is None or spec.call is None:
        return Errand(lease)
    blobs = [objects.get(function), _bytes(spec.call, objects), *(_bytes(blob, objects) for blob in lease.inputs)]
    return Errand(lease, blobs)


def brought_home(end: m.Ended, objects: Objects) -> m.Ended:
    """The same end with a large result as an object."""
    if end.result is None or end.result.data is None or len(end.result.data) <= m.INLINE_BYTES:
        return end
    name = objects.put(end.result.data)
    fields = {field: getattr(end, field) for field in end.__struct_fields__}
    return m.Ended(**fields | {"result": m.Blob(object=name)})


def _bytes(blob: m.Blob, objects: Objects) -> bytes:
    if blob.data is not None:
        return blob.data
    return objects.get(blob.object) if blob.object is not None else b""


def modelled(end: m.Ended, watts_per_cpu: float) -> m.TaskEnergy:
    """Joules where nothing counted them: CPU seconds by the watts that a busy CPU may add. Guessed, and wide."""
    joules = end.cpu_s * watts_per_cpu
    return m.TaskEnergy(end.fence, m.Energy(joules, 0.0, 3.0 * joules, "guessed", joules))

"""A result whose bytes were lost or damaged is made again by the task that made it.

The task goes to the engine once more, in a workflow of its own there, for its own may be sealed; what it gives back is
its result from then on, the same bytes or not. Whoever wanted the old bytes is refused meanwhile, and that is not held
against it.
"""

from __future__ import annotations

import logging

from wattflow.live import SEAL, TASK
from wattflow.runtime.records import TaskRecord
from wattflow.runtime.service import Service

log = logging.getLogger(__name__)
MOST = 3
"""How often a task is run again for its result's sake: where it does not last, its disk is the problem."""
OPEN = ("waiting", "running")


async def remake(service: Service, name: str) -> str | None:
    """Have an object made again that a task of an open workflow gave back; says which one, None where none did."""
    task = next((one for one in service.tasks.values() if one.result is not None and one.result.object == name), None)
    if task is None or task.workflow.state != "open":
        return None
    # Asked by each child that misses it: the first begins the remake, the others find it under way.
    if task.state == "done" and task.remade < MOST:
        log.warning("the result of task %s/%s is lost: it runs again", task.workflow.id, task.spec.key)
        _again(service, task)
        await service.stored()
    if task.state not in OPEN:
        return None
    for other in service.tasks.values():
        if task.id in other.parents and other.state in OPEN:
            # They were refused for want of these bytes, which is not their doing.
            other.refusals = 0
    return f"{task.workflow.id}/{task.spec.key}"


def _again(service: Service, task: TaskRecord) -> None:
    spec, decider = task.spec, service.decider
    workflow = decider.workflow(service.next_workflow, None, task.workflow.objective)
    service.next_workflow += 1
    shape = decider.shape(list(spec.variants), spec.function_name)
    engine = decider.put(TASK, shape, workflow=workflow, tag=task.id,
                         estimate_s=spec.estimate_s or service.learning.estimates.runtime_s(spec.function_name),
                         deadline_s=None)  # fmt: skip
    assert engine is not None
    # Sealed at once: a workflow of one task that nobody closes would stay in the engine for ever.
    decider.put(SEAL, workflow)
    task.engine, task.state, task.ready_s = engine, "waiting", service.now()
    task.remade += 1
    task.workflow.open += 1
    service.ledger.task_engine(task)
    service.ledger.task_state(task)

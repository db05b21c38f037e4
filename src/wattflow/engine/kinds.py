"""Kinds of reports and of ids: the one table that compiled code and the public enums (`live.protocol`) read.

Power states, task states, stages, fates and actions stand in `tables`, kinds of timed events in `agenda`.
"""

from __future__ import annotations

# What a driver tells, in the order in which one step folds it: a task is known before its edges, what ended before
# what is lost with its node, and CANCEL after all of it.
TASK, EDGE, ESTIMATE, STARTED, FINISHED, FAILED, REFUSED, PREEMPT = 0, 1, 2, 3, 4, 5, 6, 7
NODE, GONE, LOAD, RESIZE, CANCEL, SEAL, COLD = 8, 9, 10, 11, 12, 13, 14
KINDS = 15
"""How many there are."""

# What an id names; it stands above the generation, which stands above the row.
NODE_ID, TASK_ID, ATTEMPT_ID, SHAPE_ID, WORKFLOW_ID, CONSTRAINT_ID = 1, 2, 3, 4, 5, 6
ROW_BITS, GENERATION_BITS = 32, 27
ID_SHIFT = ROW_BITS + GENERATION_BITS
ROW_MASK = (1 << ROW_BITS) - 1
GENERATION_MASK = (1 << GENERATION_BITS) - 1

# Answers to an edge, and why an event had no effect.
ADDED, FULL, CYCLE, CHILD_STARTED, STRANGERS, DEAD_PARENT, WORKFLOW_SEALED = 0, 1, 2, 3, 4, 5, 7

"""EFT: first in, first out, each task where it ends first by estimate.

The plain online opponent of planners: it knows how fast nodes are and nothing of what will come. Busy hardware threads
slow a task and are slowed by it: both count, else it would fill second threads while whole cores are free. A sleeping
node is weighed like any other, its wake time included, so a quick one that is asleep beats a slow one that is on.

O(candidates) per task; ties go to the lower index.
"""

from __future__ import annotations

from wattflow.engine.settings import PolicySettings
from wattflow.policy import min_min
from wattflow.policy.base import Policy

EFT = Policy("eft", "each task where it ends first", score=min_min.score, settings=PolicySettings(wakes=True))

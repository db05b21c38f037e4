"""Train sb3-contrib's MaskablePPO on the scheduling environment, and compare with the flagship.

    pip install 'wattflow[learn]' sb3-contrib     # brings torch, which is large: not part of any extra
    python examples/learn/maskable_ppo.py --steps 20000 [--joint] [--judged 20]

Observations are rows of candidates, actions are their numbers, and `action_masks()` says which rows there are. Row 0
is what the flagship would do. Returned is the mean of the episodes' returns on streams that were not trained on: 0 is
the flagship within the bound on waiting, 0.1 is a tenth of its joules less.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sb3_contrib import MaskablePPO

from wattflow.learn import scenarios
from wattflow.learn.environment import SchedulingEnv

HELD_OUT = scenarios.FOLDS[0]


def environment(applications: tuple[str, ...], joint: bool, rows: int) -> SchedulingEnv:
    """Streams of these applications at any load on clusters drawn at random."""
    return SchedulingEnv(lambda seed: scenarios.draw(seed, applications, tasks=200), joint=joint, rows=rows)


def returns(env: SchedulingEnv, count: int, model: MaskablePPO | None) -> np.ndarray:
    """The returns of some episodes; without a model the first row is always taken."""
    found = []
    for seed in range(count):
        seen, info = env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            action = 0
            if model is not None:
                action = int(model.predict(seen, action_masks=info["action_mask"], deterministic=True)[0])
            seen, reward, ended, _, info = env.step(action)
            total += reward
        found.append(total)
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--joint", action="store_true", help="waiting, sleeping and waking are rows too")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--judged", type=int, default=20, help="streams of held-out applications")
    given = parser.parse_args()
    allowed = tuple(name for name in scenarios.APPLICATIONS if name not in HELD_OUT)
    began = time.monotonic()
    model = MaskablePPO(
        "MlpPolicy",
        environment(allowed, given.joint, given.rows),
        n_steps=1024,
        batch_size=128,
        gamma=1.0,
        seed=1,
        device="cpu",
        verbose=1,
    )
    model.learn(given.steps)
    print(f"trained {given.steps} steps in {time.monotonic() - began:.0f} s; judged on {', '.join(HELD_OUT)}")
    for name, policy in (("first row", None), ("MaskablePPO", model)):
        found = returns(environment(HELD_OUT, given.joint, given.rows), given.judged, policy)
        print(f"{name}: mean return {found.mean():+.3f} (standard error {found.std() / np.sqrt(len(found)):.3f})")


if __name__ == "__main__":
    main()

"""A simulation that begins anew with other numbers is the simulation that is set up with them."""

from __future__ import annotations

import numpy as np

from wattflow import generate
from wattflow.clusters import load_cluster
from wattflow.plan import joining
from wattflow.policy import registry
from wattflow.sim import SimOptions, simulate
from wattflow.sim.repeated import Repeated

CLUSTER = load_cluster("mixed")
DIALS: tuple[dict[str, float], ...] = (
    {}, {"idle": 0.4, "merit": 0.0}, {"second": 60.0, "margin": -0.2}, {"late": 1000.0, "spare": 0.05}, {}
)  # fmt: skip


def test_every_run_is_as_if_it_were_the_first() -> None:
    one = generate.workload("montage", 25, 1)
    stream = joining.joined([one] * 9, np.arange(0.0, 900.0, 100.0), CLUSTER, 4.0, "stream")
    flagship, options = registry.load("wattflow"), SimOptions(runtime_error=0.2, power_error=0.1)
    again = Repeated(stream, CLUSTER, flagship, seed=3, options=options)
    found = []
    for dials in DIALS:
        policy = flagship.with_params(**dials)
        alone, repeated = simulate(stream, CLUSTER, policy, seed=3, options=options), again.again(policy)
        assert repeated.energy_j.tolist() == alone.energy_j.tolist()
        assert np.array_equal(repeated.attempts, alone.attempts)
        assert repeated.makespan_s == alone.makespan_s and repeated.manifest == alone.manifest
        found.append(alone.total_j)
    assert found[0] == found[-1] and len(set(found)) > 2  # the dials matter, and the first ones come again

"""Carbon and money follow their own series, whichever of the two is known."""

from __future__ import annotations

import numpy as np
import pytest

from wattflow.model.cluster import Cluster, Node, Series, Zone
from wattflow.model.profile import PowerProfile
from wattflow.model.workload import Workload
from wattflow.sim import simulate

J_PER_KWH = 3.6e6


@pytest.mark.parametrize(("carbon_known", "price_known"), [(True, False), (False, True), (True, True)])
def test_a_node_of_100_watts_for_20_seconds(carbon_known: bool, price_known: bool) -> None:
    """Steps of 10 s: 300 then 600 g a kWh, 2 then 1 in money, a PUE of 1.5."""
    carbon = Series(10.0, (300.0, 600.0)) if carbon_known else Series(3600.0, (0.0,))
    price = Series(10.0, (2.0, 1.0)) if price_known else Series(3600.0, (0.0,))
    zone = Zone("z", carbon, price, pue=1.5, carbon_known=carbon_known, price_known=price_known)
    node = Node("n", 1, 2**30, power=PowerProfile((0.0, 1.0), (100.0, 100.0)), zone="z")
    workload = Workload.of_columns("one", release_s=np.zeros(1), runtime_s=np.array([20.0]))
    run = simulate(workload, Cluster("c", (node,), (zone,)), "fifo")
    kwh = 100.0 * 10.0 * 1.5 / J_PER_KWH
    assert run.carbon_g.sum() == pytest.approx(900.0 * kwh if carbon_known else 0.0)
    assert run.cost.sum() == pytest.approx(3.0 * kwh if price_known else 0.0)

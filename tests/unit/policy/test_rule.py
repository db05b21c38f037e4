"""The rule of the learned policy: short, printed as it is, and the flagship without it."""

from __future__ import annotations

import numpy as np

from wattflow.generate import Arrivals, Recipe
from wattflow.lab.show.policy_page import policy_page
from wattflow.policy import learned, placing, registry, weights
from wattflow.sim import simulate

STREAM = Recipe("montage", 40, 12, arrivals=Arrivals("poisson", 0.05))


RULE = weights.load(weights.shipped())[0]


def test_the_shipped_rule_is_short() -> None:
    theta, card = weights.load(weights.shipped())
    assert 1 <= np.count_nonzero(theta) <= 12
    assert card["explained"] > 0.5 and card["formula"] == weights.formula(theta)


def test_the_page_shows_the_formula() -> None:
    page = policy_page(registry.load("learned"))
    for line in weights.formula(RULE).splitlines():
        assert line.strip() in page


def test_it_is_what_its_file_says_and_the_flagship_without_lean() -> None:
    workload = STREAM.draw(6)
    ours = simulate(workload, "mixed", "learned", seed=2)
    same = simulate(workload, "mixed", learned.with_weights(RULE), seed=2)
    assert ours.attempts.tobytes() == same.attempts.tobytes()
    plain = simulate(workload, "mixed", registry.load("learned", lean=0.0), seed=2)
    flagship = simulate(workload, "mixed", "wattflow", seed=2)
    assert plain.attempts.tobytes() == flagship.attempts.tobytes() != ours.attempts.tobytes()


def test_a_formula_is_written_in_the_names_of_the_features() -> None:
    theta = np.zeros(weights.SIZE)
    theta[[weights.PLACE + placing.AROUND_N, weights.PLACE + placing.N - 1]] = [-0.5, 0.25]
    theta[weights.SLEEP - 1] = 0.1
    assert weights.formula(theta) == (
        "    price of a candidate × e^f,\n      f = − 0.5 · dearer + 0.25 · companions\n"
        "    an idle node's seconds before sleep × e^2n,\n      n = 0.1"
    )

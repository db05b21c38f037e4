"""The M/M/c queue in closed form, and an interval for a mean of correlated samples.

Erlang's C: A. K. Erlang 1917; any queueing text, e.g. Kleinrock, Queueing Systems 1, section 3.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats


def erlang_b(servers: int, offered: float) -> float:
    """Share of arrivals lost by a loss system; by the recursion in the number of servers."""
    lost = 1.0
    for count in range(1, servers + 1):
        lost = offered * lost / (count + offered * lost)
    return lost


def erlang_c(servers: int, arrival_rate: float, service_rate: float) -> float:
    """Probability that an arrival has to wait."""
    offered = arrival_rate / service_rate
    if offered >= servers:
        raise ValueError(f"{servers} servers are too few for an offered load of {offered}")
    lost = erlang_b(servers, offered)
    return lost / (1 - (offered / servers) * (1 - lost))


def mean_wait_s(servers: int, arrival_rate: float, service_rate: float) -> float:
    """Mean time in queue of all arrivals."""
    return erlang_c(servers, arrival_rate, service_rate) / (servers * service_rate - arrival_rate)


def wait_quantile_s(servers: int, arrival_rate: float, service_rate: float, share: float) -> float:
    """The time within which this share of arrivals starts: P(W > t) = C · exp(−(cµ − λ) t)."""
    waits = erlang_c(servers, arrival_rate, service_rate)
    if share <= 1 - waits:
        return 0.0
    return math.log(waits / (1 - share)) / (servers * service_rate - arrival_rate)


def confidence_interval(
    samples: Sequence[float], level: float = 0.99, batches: int = 20, warm_up: float = 0.1
) -> tuple[float, float]:
    """Student's interval for the steady-state mean by batch means; the first ``warm_up`` share is left out.

    Waiting times of neighbours are correlated, so means of long batches are taken as the independent samples.
    """
    kept = np.asarray(samples, float)[int(len(samples) * warm_up) :]
    if len(kept) < 10 * batches:
        raise ValueError(f"{len(kept)} samples are too few for {batches} batches")
    size = len(kept) // batches
    means = kept[: size * batches].reshape(batches, size).mean(axis=1)
    half = stats.t.ppf((1 + level) / 2, batches - 1) * means.std(ddof=1) / math.sqrt(batches)
    return float(means.mean() - half), float(means.mean() + half)

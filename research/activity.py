"""Watts from the activity of functions, where only their times and the node's watts are known.

Platforms that log invocations but no CPU time still allow attribution: with n_f invocations of function f running, the
node keeps k = Σ w_f·n_f threads busy and draws the concave

    P(k) = idle + a·(1 − e^(−k/b)) + c·k                                                       a, b, c ≥ 0

and a slow meter shows it late and smoothed (delay and one pole). Weights, curve and meter are fitted together to one
run. A straight line through the same activity is wrong at both ends: the first busy thread wakes the package, the last
ones add little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattflow.model.errors import InvalidInput
from wattflow.model.profile import PowerProfile, Provenance, Scope

Floats = NDArray[np.float64]
# One-pole smoothing of up to about 0.9 has died away after a minute; the kernel is cut there.
_MEMORY_S = 60


@dataclass(frozen=True, slots=True)
class ActivityModel:
    """A fitted node: busy threads of each function, its concave curve, and its meter's delay and smoothing."""

    functions: tuple[str, ...]
    weight: tuple[float, ...]
    idle_w: float
    rise_w: float
    bend: float
    slope_w: float
    delay_s: float
    smoothing: float

    def busy(self, activity: Floats) -> Floats:
        """Return busy threads at each second, from running invocations by function (columns)."""
        return np.asarray(activity @ np.array(self.weight), np.float64)

    def curve_w(self, busy: Floats) -> Floats:
        """Return P(k), before the meter."""
        shape = self.rise_w * (1.0 - np.exp(-busy / self.bend)) + self.slope_w * busy
        return np.asarray(self.idle_w + shape, np.float64)

    def watts(self, activity: Floats) -> Floats:
        """Tell what the meter shows at each second."""
        return _metered(self.curve_w(self.busy(activity)), self.delay_s, self.smoothing)

    def profile(self, threads: int, scope: Scope = Scope.WALL) -> PowerProfile:
        """Return the curve as a power profile up to ``threads`` busy threads."""
        busy = np.arange(threads + 1, dtype=np.float64)
        source = "fitted to the activity of functions"
        return PowerProfile(tuple(busy), tuple(self.curve_w(busy).tolist()), scope, Provenance.MODELLED, source)

    def marginal_j(self, activity: Floats, function: str) -> float:
        """Return joules that the node would not have drawn, had this function never run."""
        without = activity.copy()
        without[:, self.functions.index(function)] = 0.0
        return float((self.curve_w(self.busy(activity)) - self.curve_w(self.busy(without))).sum())

    def attributed_j(self, activity: Floats, watts: Floats) -> Mapping[str, float]:
        """Share measured joules above idle by busy threads at each second; ``idle`` and ``unattributed`` beside.

        The parts sum to the measured joules exactly. Watts belong to the activity a delay earlier.
        """
        # Through the same delay and smoothing as the watts, so that both speak of the same seconds.
        shifted = np.stack([_metered(column, self.delay_s, self.smoothing) for column in activity.T], axis=1)
        threads = np.maximum(shifted, 0.0) * np.array(self.weight)
        total = threads.sum(axis=1)
        # Not below zero above idle: a reading under the fitted idle counts as idle whole.
        idle = np.minimum(watts, self.idle_w)
        active = watts - idle
        # Seconds in which nobody ran have no share to give: their watts above idle stay unattributed.
        somebody = total > 1e-9
        share = np.divide(threads, total[:, None], out=np.zeros_like(threads), where=somebody[:, None])
        parts = {name: float((active * share[:, i]).sum()) for i, name in enumerate(self.functions)}
        return parts | {"idle": float(idle.sum()), "unattributed": float(active[~somebody].sum())}


def concurrency(
    functions: Sequence[str], invocations: Sequence[tuple[str, float, float]], begin_s: int, seconds: int
) -> Floats:
    """Return the mean running invocations of each function (columns) in each second from ``begin_s``."""
    column = {name: i for i, name in enumerate(functions)}
    # Second differences of each invocation's ramp: exact overlap with every second, in one pass.
    steps = np.zeros((seconds + 2, len(column)))
    for name, start_s, end_s in invocations:
        for moment, sign in ((start_s - begin_s, 1.0), (end_s - begin_s, -1.0)):
            at = min(max(moment, 0.0), float(seconds))
            whole = int(at)
            steps[whole, column[name]] += sign * (1.0 - (at - whole))
            steps[whole + 1, column[name]] += sign * (at - whole)
    return np.asarray(np.cumsum(steps, axis=0)[:seconds], np.float64)


def fit(functions: Sequence[str], activity: Floats, watts: Floats) -> ActivityModel:
    """Fit to one run: ``activity`` by second and function, ``watts`` by second (NaN or 0 where the meter dropped out).

    Errors count relative to the watts, and large ones less than squared: a drop-out or a stray process should not bend
    the curve.
    """
    known = np.isfinite(watts) & (watts > 0)
    if known.sum() < 30 or len(watts) != len(activity):
        raise InvalidInput("activity fit", f"needs at least 30 s of watts beside the activity, got {int(known.sum())}")
    quiet = known & (activity.sum(axis=1) < 1e-9)
    seen = watts[known]
    # Where the run was never quiet, its lowest readings stand for idle; not the minimum, which may be a
    # drop-out.
    idle_w = float(np.median(watts[quiet])) if quiet.sum() >= 5 else float(np.quantile(seen, 0.02))
    count = len(functions)

    def model(parameters: Floats) -> ActivityModel:
        # Logarithms are fitted, so that weights and curve stay positive; clipped, so that a wild step
        # cannot overflow.
        weight = np.exp(np.clip(parameters[:count], -8, 8))
        rise, bend, slope = np.exp(np.clip(parameters[count + 1 : count + 4], -8, 12))
        # A logistic keeps the smoothing between 0 and 1.
        smoothing = 1.0 / (1.0 + np.exp(np.clip(-parameters[count + 5], -30, 30)))
        idle, delay = parameters[count], parameters[count + 4]
        return ActivityModel(
            tuple(functions),
            tuple(weight.tolist()),
            float(idle),
            float(rise),
            float(bend),
            float(slope),
            float(np.clip(delay, -5, 15)),
            float(smoothing),
        )

    def residual(parameters: Floats) -> Floats:
        error = (model(parameters).watts(activity)[known] - seen) / seen
        # Weights and slope trade against each other: a weak pull towards weight 1 keeps both in units of threads.
        return np.concatenate([_soft(error, 0.1), 0.02 * parameters[:count]])

    rise = np.log(max(1e-3, float(np.ptp(seen)) / 2))
    start = np.concatenate([np.zeros(count), [idle_w, rise, 0.5, 0.0, 1.0, -1.0]])
    return model(levenberg(residual, start))


def _soft(error: Floats, scale: float) -> Floats:
    """Soften residuals: their squares grow only linearly beyond ``scale``."""
    cost = 2.0 * (np.sqrt(1.0 + (error / scale) ** 2) - 1.0)
    return np.asarray(np.sign(error) * scale * np.sqrt(cost), np.float64)


def _metered(watts: Floats, delay_s: float, smoothing: float) -> Floats:
    """Model a meter that answers late and with one pole: s ← smoothing·s + (1 − smoothing)·watts."""
    seconds = np.arange(len(watts), dtype=np.float64)
    # `interp` holds the ends: before the run the meter is taken to have shown its first value.
    late = np.interp(seconds - delay_s, seconds, watts)
    # Normalised below, so that cutting the kernel costs no joules.
    kernel = (1.0 - smoothing) * smoothing ** np.arange(_MEMORY_S)
    padded = np.concatenate([np.full(_MEMORY_S - 1, late[0]), late])
    return np.asarray(np.convolve(padded, kernel / kernel.sum(), "valid"), np.float64)


def levenberg(residual: Callable[[Floats], Floats], start: Floats, rounds: int = 60) -> Floats:
    """Solve least squares by Levenberg and Marquardt with a numerical Jacobian; for a dozen parameters."""
    best, error = start.astype(np.float64), residual(start)
    damping = 1e-2
    for _ in range(rounds):
        step = 1e-5 * np.maximum(1.0, np.abs(best))
        jacobian = np.stack(
            [(residual(best + step * unit) - error) / step[i] for i, unit in enumerate(np.eye(len(best)))], axis=1
        )
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ error
        improved = False
        for _ in range(12):
            # Scaled by the diagonal (Marquardt), so that parameters of different units move alike; the floor
            # keeps a parameter without influence from making the matrix singular.
            move = np.linalg.solve(normal + damping * np.diag(np.maximum(np.diag(normal), 1e-9)), -gradient)
            trial = residual(best + move)
            if float(trial @ trial) < float(error @ error):
                gain = 1.0 - float(trial @ trial) / float(error @ error)
                # Gains below 1e-7 are noise of the numerical Jacobian: stop there.
                best, error, damping, improved = best + move, trial, damping / 3, gain > 1e-7
                break
            damping *= 3
        if not improved:
            break
    return best


def kepler_split(threads: int, step_s: float, counted_j: float, used_cpu_s: Mapping[str, float]) -> dict[str, float]:
    """Tell what Kepler (0.10 and later) would charge each process for one step.

    Active energy is the counted energy times the node's CPU utilisation; processes share it by CPU time.
    """
    busy_s = sum(used_cpu_s.values())
    active_j = counted_j * min(1.0, busy_s / (threads * step_s))
    return {name: active_j * cpu_s / busy_s if busy_s > 0 else 0.0 for name, cpu_s in used_cpu_s.items()}

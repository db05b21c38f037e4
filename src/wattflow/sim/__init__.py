"""The simulator: an event heap plus physics, driving the engine. See docs/physics.md for every rule."""

from wattflow.sim.simulate import SimOptions, simulate

__all__ = ["SimOptions", "simulate"]

"""Scheduler frames: mechanisms that several components share, as data, and a compiled simulator for them."""

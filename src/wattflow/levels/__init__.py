"""Levels of real devices: clocks and power limits that can be set, held while a task runs, and given back for sure."""

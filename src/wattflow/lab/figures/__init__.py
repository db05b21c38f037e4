"""Figures of a run, ideal times, watts over time, statistics."""

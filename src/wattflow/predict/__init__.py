"""Predictions: runtime, memory and CPU need, watts and joules, each with an interval and its provenance."""

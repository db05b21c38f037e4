"""Frozen facts: workflows, workloads, clusters, power profiles, runs, units and errors."""

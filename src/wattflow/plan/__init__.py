"""Planners that must simulate to decide: evolutionary search, and bounds to judge plans by."""

"""Runs the points of an experiment, and keeps a Run as a file."""

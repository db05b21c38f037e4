"""Strict tables, files that appear whole or not at all, the folder of real data."""

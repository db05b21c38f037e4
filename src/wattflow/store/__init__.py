"""The store of a live server: workflows, tasks, attempts, nodes and the engine's journal; objects by their hash."""

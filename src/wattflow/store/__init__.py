"""What a live server keeps: workflows, tasks, attempts, nodes and the engine's journal; objects by their hash."""

"""A second simulator, written from docs/physics.md alone: plain objects, slow, meant to be obviously right."""

"""The live engine: events in, placements and actions out, the caller's clock. See docs/driving.md."""

"""Meters: counters of joules behind one port. `probe` tries them in order; each other module is one source."""

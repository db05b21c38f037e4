"""Research on wattflow: what only benchmarks and papers need. Outside the wheel; nothing in `wattflow` imports it."""

"""A scheduler frame as a service: several placers on one cluster, each a process with a lease of its own."""

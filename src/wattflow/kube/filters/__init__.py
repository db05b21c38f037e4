"""Filters equal to kube-scheduler's default set, as pure functions over a snapshot of nodes and pods."""

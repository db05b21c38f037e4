"""A real Kubernetes with Argo on one machine: built from Go modules, started on loopback, stopped without a trace.

Uses nothing beyond Python's standard library, so that `make kube-rig` and `make kube-up` need only Python and Go.
"""

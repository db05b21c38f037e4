"""Kubernetes and Argo: API client, filters equal to the default scheduler's, a scheduler over the live engine."""

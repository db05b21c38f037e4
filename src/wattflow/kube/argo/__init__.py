"""Argo Workflows: the graph behind the pods, and finished workflows as WfFormat."""

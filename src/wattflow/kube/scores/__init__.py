"""Scores as kube-scheduler gives them, and who is offered which nodes because of them."""

"""Policies beside each other."""

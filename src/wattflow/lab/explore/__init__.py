"""Spaces of scheduler designs."""

"""Raised by who reads the store where there is nothing to read."""

from __future__ import annotations

from wattflow.model.errors import WattflowError


class NotKept(WattflowError):
    """Raised where it is not kept any more."""


class Missing(WattflowError):
    """Raised where there is no such thing."""

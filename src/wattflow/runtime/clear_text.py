"""Tokens do not travel in the clear, unless somebody said that they may (a private network, a tunnel)."""

from __future__ import annotations

import ipaddress
import os
from urllib.parse import urlsplit

from wattflow.model.errors import InvalidInput

VARIABLE = "WATTFLOW_CLEAR_TEXT"
"""Set to 1 it allows clients and agents to send their token over plain HTTP."""


def is_local(host: str) -> bool:
    """Say whether an address is this machine's own: loopback, or no address at all (0.0.0.0)."""
    try:
        address = ipaddress.ip_address(host.strip("[]").split("%")[0])
        return address.is_loopback or address.is_unspecified
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def check_server(server: str) -> None:
    """Refuse addresses (several have commas between) to one of which a token would travel in the clear."""
    for one in server.split(","):
        parts = urlsplit(one)
        if parts.scheme == "http" and not is_local(parts.hostname or "") and os.environ.get(VARIABLE) != "1":
            raise InvalidInput(
                one[:200],
                "a token would travel in the clear; use https (`wattflow up --tls-cert`), or set "
                f"{VARIABLE}=1 where the network itself is private",
            )


def check_listening(host: str, tls: bool, allowed: bool) -> None:
    """Refuse to listen where tokens would come in the clear."""
    unspecified = host.strip("[]") in ("0.0.0.0", "::", "")
    if not tls and not allowed and (unspecified or not is_local(host)):
        raise InvalidInput(
            f"--host {host}",
            "tokens would travel in the clear: give --tls-cert and --tls-key, or say --clear-text where the network "
            "itself is private",
        )

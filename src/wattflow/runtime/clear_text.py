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
    """Refuse the address of a server (or several, with commas between) to which a token would travel in the clear."""
    if not all(is_private(one) for one in server.split(",")):
        raise InvalidInput(
            server[:200],
            "a token would travel in the clear; use https (`wattflow up --tls-cert`), or set "
            f"{VARIABLE}=1 where the network itself is private",
        )


def is_private(server: str) -> bool:
    """Return whether a token may be sent to an address: to this machine, encrypted, or where a person has said so."""
    parts = urlsplit(server)
    return parts.scheme != "http" or is_local(parts.hostname or "") or os.environ.get(VARIABLE) == "1"


def check_listening(host: str, tls: bool, allowed: bool) -> None:
    """Refuse to listen where tokens would come in the clear."""
    unspecified = host.strip("[]") in ("0.0.0.0", "::", "")
    if not tls and not allowed and (unspecified or not is_local(host)):
        raise InvalidInput(
            f"--host {host}",
            "tokens would travel in the clear: give --tls-cert and --tls-key, or say --clear-text where the network "
            "itself is private",
        )

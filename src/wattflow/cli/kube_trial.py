"""`wattflow kube enable`, `disable`, `savings` and `profiles`: the way in and out for an operator."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from wattflow.cli.live import check_address
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.kube.access import Access
    from wattflow.kube.client import Client

T = TypeVar("T")
# As the API server would refuse it; here the option can be named.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"([a-zA-Z0-9.-]{1,253}/)?[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?")
_VALUE = re.compile(r"([a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)?")


def _within(where: Access, job: Callable[[Client], Awaitable[T]]) -> T:
    import asyncio  # not loaded for --help

    from wattflow.kube.client import Client

    async def run() -> T:
        async with Client(where) as client:
            return await job(client)

    return asyncio.run(run())


def switch(where: Access, on: bool, namespace: str, selector: str, scheduler: str) -> str:
    """Give pods of a namespace to us, or back."""
    from wattflow.kube import opt_in

    for option, text in (("NAMESPACE", namespace), ("--name", scheduler)):
        if not _NAME.fullmatch(text):
            raise InvalidInput(option, f"{text[:80]!r} is no name: small letters, digits and dashes")
    labels = _labels(selector)
    return _within(
        where, lambda client: (opt_in.enable if on else opt_in.disable)(client, namespace, labels, scheduler)
    )


def _labels(selector: str) -> dict[str, str]:
    found = {}
    for part in filter(None, selector.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
            raise InvalidInput("--selector", f"{part[:80]!r} is not LABEL=VALUE; several are separated by commas")
        found[key] = value
    return found


def savings(where: Access, url: str, release: str) -> str:
    """Say what a shadow would have saved."""
    from wattflow.kube import opt_in

    if url:
        check_address(url)
    if not re.fullmatch(r"[-a-z0-9]+/[-a-z0-9]+", release):
        raise InvalidInput("--release", f"{release[:80]!r} is not NAMESPACE/NAME")
    return _within(where, lambda client: opt_in.savings(client, url, release))


def profiles(where: Access, prometheus: str, days: float, write: bool) -> str:
    """List the curves of nodes; with a Prometheus fit them, and write them if asked."""
    import time

    from wattflow.kube import curves
    from wattflow.kube.power_write import write_profile

    if not 0.04 <= days <= 60:
        raise InvalidInput("--days", f"{days:g} is not within 0.04 (an hour) and 60")
    if write and not prometheus:
        raise InvalidInput("--write", "needs --prometheus: there is nothing else to write")
    if not prometheus:
        return "\n".join(_within(where, curves.listed)) or "there are no nodes"
    check_address(prometheus)
    found = _within(where, lambda client: curves.fitted(client, prometheus, days))
    if write:
        import asyncio

        for one in found:
            if one.found is not None:
                asyncio.run(write_profile(where, one.node, one.found.curve))
    return "\n".join(curves.told(one, time.time()) for one in found)

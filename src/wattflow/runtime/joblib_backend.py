"""joblib's batches as tasks: ``register()``, then ``with joblib.parallel_config("wattflow"): …``. Needs joblib."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joblib import register_parallel_backend
from joblib._parallel_backends import AutoBatchingMixin, ParallelBackendBase

from wattflow.runtime.client import Client


class WattflowBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """A backend on a wattflow server.

    Args:
        client: A client that is open; where None, one of this machine's server is made and closed with the backend.
    """

    supports_retrieve_callback = True

    def __init__(self, client: Client | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._given, self._client = client, client

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """As many as are asked for; all processors of the nodes for −1."""
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        nodes = self._open()._call("GET", "/v1/nodes")
        return max(1, int(sum(node["cpus"] for node in nodes if node["state"] != "down")))

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], None] | None = None) -> Any:
        """Run a batch of calls."""
        future = self._open().submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Any) -> Any:
        """The results of a batch that has ended."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Give up what is under way, after an error in one of the batches."""
        client = self._open()
        for future in list(client._futures.values()):
            future.cancel()

    def terminate(self) -> None:
        """Close the client if it is the backend's own."""
        if self._client is not None and self._given is None:
            self._client.shutdown(wait=False)
            self._client = None

    def _open(self) -> Client:
        if self._client is None:
            self._client = Client(name="joblib")
        return self._client


def register(name: str = "wattflow") -> None:
    """Make the backend known to joblib."""
    register_parallel_backend(name, WattflowBackend)

"""How to reach an API server: from a kubeconfig file, from inside a pod, or given by hand."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
import re
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from wattflow.files.whole import small_text
from wattflow.model.errors import InvalidInput, WattflowError

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NoCluster(WattflowError):
    """No way to an API server is known; the message says where we looked."""


@dataclass(frozen=True, slots=True)
class Access:
    """An API server and who we are there. A token is read from its file anew, since clusters rotate them."""

    server: str
    namespace: str = "default"
    token: str = ""
    token_file: Path | None = None
    tls: ssl.SSLContext | None = None

    def bearer(self) -> str:
        """Return the token to send now, or an empty text."""
        return self.token_file.read_text().strip() if self.token_file is not None else self.token


def find(kubeconfig: Path | None = None, context: str | None = None) -> Access:
    """Find the given kubeconfig, else ``KUBECONFIG``, else the pod's own account, else ``~/.kube/config``."""
    if kubeconfig is not None:
        return from_kubeconfig(kubeconfig, context)
    named = os.environ.get("KUBECONFIG")
    if named:
        # kubectl merges all files of the list; we read the first only.
        return from_kubeconfig(Path(named.split(os.pathsep)[0]), context)
    if "KUBERNETES_SERVICE_HOST" in os.environ and (_ACCOUNT / "token").exists():
        return in_cluster()
    usual = Path.home() / ".kube" / "config"
    if usual.exists():
        return from_kubeconfig(usual, context)
    raise NoCluster("no cluster: give --kubeconfig or KUBECONFIG, or run in a pod with a service account")


def in_cluster(account: Path = _ACCOUNT) -> Access:
    """Return the service account that a pod finds mounted."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    namespace = (account / "namespace").read_text().strip() if (account / "namespace").exists() else "default"
    return Access(f"https://{host}:{port}", namespace, token_file=account / "token", tls=tls)


def from_kubeconfig(path: Path, context: str | None = None) -> Access:
    """Read one context of a kubeconfig file, the current one by default."""
    # Imported here: with a service account no YAML is read.
    import yaml

    text = small_text(path, "kubeconfig")
    try:
        raw = yaml.safe_load(text)
    # `safe_load` recurses into nested flows; a hostile file must not end in a traceback.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(str(path), f"not YAML: {error}") from None
    if not isinstance(raw, dict):
        raise InvalidInput(str(path), "not a kubeconfig: it must be a mapping with clusters, users and contexts")
    wanted = context or raw.get("current-context")
    if not wanted:
        raise InvalidInput(str(path), "names no current-context; give one")
    chosen = _entry(path, raw, "context", str(wanted))
    cluster = _entry(path, raw, "cluster", str(chosen.get("cluster", "")))
    user = _entry(path, raw, "user", str(chosen.get("user", ""))) if chosen.get("user") else {}
    for unsupported in ("exec", "auth-provider"):
        if unsupported in user:
            raise InvalidInput(str(path), f"the user logs in by {unsupported}, which is not supported; use a token")
    server = str(cluster.get("server", ""))
    if not server:
        raise InvalidInput(str(path), f"the cluster of context {wanted!r} has no server")
    if not _is_address(server):
        raise InvalidInput(str(path), f"the server {server[:100]!r} is not like https://HOST:PORT")
    token_file = user.get("tokenFile")
    return Access(
        server.rstrip("/"),
        str(chosen.get("namespace") or "default"),
        str(user.get("token") or ""),
        # Paths in a kubeconfig are relative to the file, not to the working directory.
        path.parent / str(token_file) if token_file else None,
        _tls(path, cluster, user) if server.startswith("https") else None,
    )


def _is_address(server: str) -> bool:
    """Tell whether a URL has a host, and a port if it names one."""
    try:
        parts = urlsplit(server)
        host, port = parts.hostname or "", parts.port
        # `urlsplit` takes 10.0.0.999 for a host name; the resolver would fail much later with an unclear
        # message.
        if re.fullmatch(r"[0-9.]+", host):
            ipaddress.IPv4Address(host)
        return parts.scheme in ("http", "https") and bool(host) and (port is None or port > 0)
    except ValueError:
        return False


def _entry(path: Path, raw: Mapping[str, object], kind: str, name: str) -> Mapping[str, object]:
    """Return the body of one named entry of ``clusters``, ``users`` or ``contexts``."""
    entries = raw.get(kind + "s")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(kind), dict):
            return cast(Mapping[str, object], entry[kind])
    raise InvalidInput(str(path), f"has no {kind} named {name!r}")


def _tls(path: Path, cluster: Mapping[str, object], user: Mapping[str, object]) -> ssl.SSLContext:
    authority = _data(path, cluster, "certificate-authority")
    try:
        tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    except (ssl.SSLError, ValueError):
        raise InvalidInput(str(path), "its certificate-authority is no certificate in PEM form") from None
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate, key = _data(path, user, "client-certificate"), _data(path, user, "client-key")
    if certificate and key:
        # the ssl module reads certificates from files only; these live for the time of the call
        with tempfile.TemporaryDirectory(prefix="wattflow-") as folder:
            both = Path(folder) / "client.pem"
            # With its mode before a key is in it.
            both.touch(mode=0o600)
            both.write_bytes(certificate + b"\n" + key)
            try:
                tls.load_cert_chain(str(both))
            except ssl.SSLError:
                raise InvalidInput(str(path), "its client-certificate and client-key are no pair in PEM form") from None
    return tls


def _data(path: Path, entry: Mapping[str, object], key: str) -> bytes | None:
    """Return inline data, or the content of the file that is named instead."""
    inline = entry.get(f"{key}-data")
    if inline:
        try:
            return base64.b64decode(str(inline), validate=True)
        except binascii.Error:
            raise InvalidInput(str(path), f"{key}-data is not base64") from None
    named = entry.get(key)
    return (path.parent / str(named)).read_bytes() if named else None

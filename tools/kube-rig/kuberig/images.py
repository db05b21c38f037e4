"""Container images made by hand: an OCI archive is three JSON files and a tar of the files inside."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kuberig.parts import program

PAUSE = "localhost/wattflow/pause:1"
BUSYBOX = "localhost/wattflow/busybox:1"
ARGOEXEC = "localhost/wattflow/argoexec:1"

# Enough of busybox for shell scripts; a command that is not here is called as `busybox NAME`.
_COMMANDS = (  # noqa: SIM905
    "sh cat echo true false sleep head tail sort uniq wc seq awk sed grep gzip gunzip sha256sum md5sum "
    "dd tr cut date env mkdir rm cp mv ls test touch tee xargs find od split bc chroot"
).split()


@dataclass(frozen=True, slots=True)
class Image:
    """What an image is called, holds and runs."""

    name: str
    files: Mapping[str, Path]  # path inside -> file outside
    links: Mapping[str, str]
    entrypoint: Sequence[str] = ()


def busybox() -> Path:
    """Debian's static busybox.

    Raises:
        FileNotFoundError: it is not installed.
    """
    found = shutil.which("busybox")
    if found is None:
        raise FileNotFoundError("busybox is not installed; `make kube-rig` installs busybox-static where apt can")
    return Path(found)


def images(with_argo: bool = True) -> list[Image]:
    """The images that a real node carries: the pod sandbox, a shell with real programs, Argo's executor."""
    inside = {"bin/busybox": busybox()}
    links = {f"bin/{command}": "busybox" for command in _COMMANDS}
    made = [
        Image(PAUSE, inside, {}, ("/bin/busybox", "sleep", "2147483647")),
        Image(BUSYBOX, inside, links),
    ]
    if with_argo:
        made.append(Image(ARGOEXEC, {**inside, "bin/argoexec": program("argoexec")}, links, ("argoexec",)))
    return made


def write_archive(image: Image, path: Path) -> None:
    """Writes an OCI archive that `ctr images import` reads."""
    layer = _layer(image)
    config = _blob(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": list(image.entrypoint), "Env": ["PATH=/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _blob(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _reference("application/vnd.oci.image.config.v1+json", config),
            "layers": [_reference("application/vnd.oci.image.layer.v1.tar", layer)],
        }
    )
    named = {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": image.name}
    entry = {**_reference("application/vnd.oci.image.manifest.v1+json", manifest), "annotations": named}
    with tarfile.open(path, "w") as archive:
        _add(archive, "oci-layout", _blob({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", _blob({"schemaVersion": 2, "manifests": [entry]}))
        for blob in (layer, config, manifest):
            _add(archive, f"blobs/sha256/{_digest(blob)[7:]}", blob)


def _layer(image: Image) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("bin", "etc", "tmp", "var", "var/run"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
        for inside, outside in image.files.items():
            _add(tar, inside, outside.read_bytes(), 0o755)
        for inside, target in image.links.items():
            entry = tarfile.TarInfo(inside)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def _blob(document: object) -> bytes:
    return json.dumps(document).encode()


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _reference(kind: str, data: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(data), "size": len(data)}

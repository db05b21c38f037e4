"""Building what is missing, one progress line per part."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kuberig import parts

# The module mirror turns a cold cache away when asked too quickly; what has arrived by then is kept.
_BUSY = ("429 Too Many Requests", "503 Service Unavailable", "i/o timeout", "connection reset", "TLS handshake timeout")
_TRIES = 20
_PAUSE_S = 15.0


class BuildFailed(RuntimeError):
    """A part could not be built; the message ends with the compiler's last lines."""


def build(names: tuple[str, ...] = ()) -> None:
    """Builds every named part (all by default) that the cache lacks.

    Raises:
        BuildFailed: Go is missing, or a build failed.
    """
    todo = parts.missing(names)
    if not todo:
        _say(f"kube-rig: everything is built ({parts.cache_dir()})")
        return
    if shutil.which("go") is None:
        raise BuildFailed("kube-rig needs Go (1.26 or later) to build " + ", ".join(p.name for p in todo))
    for number, part in enumerate(todo, 1):
        started = time.monotonic()
        _say(f"kube-rig: [{number}/{len(todo)}] {part.name} {part.version} ...")
        _build_part(part)
        _say(f"kube-rig: [{number}/{len(todo)}] {part.name} {part.version} built in {time.monotonic() - started:.0f} s")


def _build_part(part: parts.Part) -> None:
    parts.cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{part.name}-", dir=parts.cache_dir()) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        if not part.module:
            _install(part, made)
        elif part.vendored:
            _build_vendored(part, made, Path(scratch) / "module")
        else:
            _build_module(part, made, parts.HERE / part.module)
        _copy_definitions(part, made)
        target = parts.part_dir(part)
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)


def _flags(part: parts.Part) -> list[str]:
    flags = ["-trimpath", "-ldflags", f"-s -w {part.flags}".rstrip()]
    return [*flags, "-tags", part.tags] if part.tags else flags


def _build_module(part: parts.Part, made: Path, folder: Path, mod: str = "readonly") -> None:
    _go(["build", f"-mod={mod}", *_flags(part), "-o", f"{made}/{_output(part)}", *part.packages], folder)


def _output(part: parts.Part) -> str:
    return part.programs[0] if len(part.packages) == 1 else ""


def _install(part: parts.Part, made: Path) -> None:
    packages = [f"{package}@v{part.version}" for package in part.packages]
    _go(["install", *_flags(part), *packages], Path(tempfile.gettempdir()), GOBIN=str(made))


def _build_vendored(part: parts.Part, made: Path, folder: Path) -> None:
    """Argo: its module archive lacks a symbolic link, so the file is put in place in a vendored copy."""
    shutil.copytree(parts.HERE / part.module, folder)
    _go(["mod", "vendor"], folder)
    source = folder / "vendor" / parts.ARGO_MODULE / "workflow" / "executor" / "osspecific"
    if not (source / "signal_linux.go").exists():
        shutil.copyfile(source / "signal_darwin.go", source / "signal_linux.go")
    _build_module(part, made, folder, mod="vendor")


def _copy_definitions(part: parts.Part, made: Path) -> None:
    if not part.definitions:
        return
    module, *patterns = part.definitions
    where = _go(["list", "-m", "-f", "{{.Dir}}", module], parts.HERE / part.module).strip()
    for pattern in patterns:
        for file in sorted(Path(where).glob(pattern)):
            (made / file.name).write_bytes(file.read_bytes())


def _go(arguments: list[str], folder: Path, **extra: str) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", **extra}
    for attempt in range(1, _TRIES + 1):
        done = subprocess.run(["go", *arguments], cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout
        if attempt == _TRIES or not any(sign in done.stderr for sign in _BUSY):
            break
        _say(f"kube-rig: the module mirror is busy, trying again in {_PAUSE_S:.0f} s ({attempt}/{_TRIES})")
        time.sleep(_PAUSE_S)
    tail = "\n".join(done.stderr.strip().splitlines()[-15:])
    raise BuildFailed(f"go {' '.join(arguments[:1])} failed in {folder}:\n{tail}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

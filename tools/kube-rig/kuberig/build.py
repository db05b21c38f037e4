"""Building what is missing, one progress line per part."""

from __future__ import annotations

import os
import re
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
_REPLACES = re.compile(r"^replace \(.*?^\)\n", re.MULTILINE | re.DOTALL)


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
            _build_vendored(part, made, _module(part), Path(scratch) / "module")
        else:
            _build_module(part, made, _module(part))
        _copy_definitions(part, made)
        target = parts.part_dir(part)
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)


def _module(part: parts.Part) -> Path:
    """The folder of the Go module that a part is built from."""
    pinned = parts.HERE / part.module
    other = part.root and f"{part.root} v{part.version}" not in (pinned / "go.mod").read_text()
    return _resolved(part, pinned) if other else pinned


def _resolved(part: parts.Part, pinned: Path) -> Path:
    """A module for another version than the pinned one: what it needs is resolved once and kept with its checksums."""
    folder = parts.cache_dir() / f"module-{part.root.replace('/', '-')}-{part.version}"
    if (folder / "go.sum").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    generation = re.compile(rf"{re.escape(part.root.rpartition('/v')[0])}/v[0-9]+") if "/v" in part.root else None
    named = (pinned / "tools.go").read_text()
    (folder / "tools.go").write_text(generation.sub(part.root, named) if generation else named)
    text = (pinned / "go.mod").read_text()
    # staging modules of 1.35.8 are v0.35.8; those that the version does not have yet are asked for by nobody
    staging = part.version.partition(".")[2]
    replaced = re.sub(r" v0\.[0-9.]+$", f" v0.{staging}", "".join(_REPLACES.findall(text)), flags=re.MULTILINE)
    (folder / "go.mod").write_text(f"module resolved\n\ngo 1.26.0\n\nrequire {part.root} v{part.version}\n\n{replaced}")
    _go(["mod", "tidy"], folder)
    return folder


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


def _build_vendored(part: parts.Part, made: Path, module: Path, folder: Path) -> None:
    """Argo: its module archive lacks a symbolic link, so the file is put in place in a vendored copy."""
    shutil.copytree(module, folder)
    _go(["mod", "vendor"], folder)
    # its folder is called otherwise in 3.6
    (there,) = (folder / "vendor" / parts.ARGO_MODULE / "workflow" / "executor").glob("os*specific/signal_darwin.go")
    if not there.with_name("signal_linux.go").exists():
        shutil.copyfile(there, there.with_name("signal_linux.go"))
    _build_module(part, made, folder, mod="vendor")


def _copy_definitions(part: parts.Part, made: Path) -> None:
    if not part.definitions:
        return
    module, *patterns = part.definitions
    where = _go(["list", "-m", "-f", "{{.Dir}}", module], _module(part)).strip()
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

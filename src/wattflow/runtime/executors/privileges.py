"""Whom tasks run as on a node: a user id of their owner's, a container, or (where neither can be) the agent's own.

Whatever it is, a task gets a clean environment (none of the agent's secrets), can gain no privileges, and shares no
process with another user's.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wattflow.model.errors import InvalidInput
from wattflow.runtime.messages import folder_name

FIRST_UID, LAST_UID = 61_184, 65_519
"""User ids that no account has: the range that systemd takes for its dynamic users."""
GROUPS = ("video", "render")
"""Who may use GPUs, where devices are not everybody's."""
KEPT = ("PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "SHELL", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE",
        "SSL_CERT_DIR", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "ROCM_PATH")  # fmt: skip
KEPT_PREFIXES = ("LC_", "PYTHON", "CUDA_", "NUMBA_", "OMP_", "MKL_", "OPENBLAS_", "NCCL_", "HIP_")
OWN = ("HOME", "USER", "LOGNAME")
"""Kept where tasks run as the agent's user."""
WORK = Path("/var/tmp")
INSIDE = "/wattflow-zygote.py"
"""Where a container sees the zygote's script."""
LOWERED = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
"""Podman's own default exceeds what a container within a container may set."""
PULL_S = 600.0
"""Longest wait for a trial in a container, whose image may have to come from afar."""
_TRIAL = "import json, socket, pickle"
CHOICES = "auto, self, users, podman:IMAGE or apptainer:IMAGE"


@dataclass(slots=True)
class Privileges:
    """How tasks are kept apart.

    Attributes:
        kind: ``self``, ``users``, ``podman`` or ``apptainer``.
        image: Of the containers.
        about: What the start says about it.
        passed: Names of further variables of the agent's environment that tasks get.
        work: Where the folders of users and of their workflows lie; set by `settle`.
    """

    kind: str = "self"
    image: str = ""
    about: str = ""
    passed: tuple[str, ...] = ()
    work: Path | None = None
    _uids: dict[str, int] = field(default_factory=dict)

    def become(self, owner: str) -> dict[str, Any] | None:
        """Tell whom a task of this owner becomes, as the zygote takes it; None where it stays what it is."""
        if self.kind == "self" or os.geteuid() != 0:
            return None
        if owner not in self._uids:
            span, taken = LAST_UID - FIRST_UID + 1, set(self._uids.values())
            # By the owner's name: after a restart of the agent a user's files are still theirs.
            start = int.from_bytes(hashlib.sha256(owner.encode(errors="surrogatepass")).digest()[:4], "big")
            free = (FIRST_UID + (start + step) % span for step in range(span))
            # Two names may hash to one number; sharing it would let one read the other's folder.
            uid = next((uid for uid in free if uid not in taken), None)
            if uid is None:
                raise OSError(f"more than {span} users have tasks on this node")
            self._uids[owner] = uid
            self._make(self._home(owner), uid)
        uid = self._uids[owner]
        return {"uid": uid, "gid": uid, "groups": _device_groups(), "home": str(self._home(owner) or "/")}

    def environment(self, given: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Tell what tasks get of the agent's environment: what programs need to run, and no secrets."""
        names = (*KEPT, *self.passed, *(OWN if self.kind == "self" else ()))
        kept = {name: value for name, value in given.items() if name in names or name.startswith(KEPT_PREFIXES)}
        # A list of what is kept, not of what is taken away: nobody knows the names of all secrets.
        return {"PATH": os.defpath, **kept}

    def settle(self, folder: Path, node: str) -> None:
        """Choose where users' folders lie: tasks of other users cannot come into the agent's own folder."""
        others = self.kind != "self" and os.geteuid() == 0
        self.work = _own_folder(WORK / f"wattflow-{folder_name(node)}") if others else folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)

    @property
    def contained(self) -> bool:
        """Say whether the zygote itself runs in a container."""
        return self.kind in ("podman", "apptainer")

    def command(self, python: str, script: Path, control: int, preload: Sequence[str]) -> list[str]:
        """Tell how a zygote is started whose control socket is this file descriptor."""
        if not self.contained:
            return [python, "-P", str(script), str(control), *preload]
        inside = [self.image, "python3", "-P", INSIDE, "3", *preload]
        mounts = [f"{script}:{INSIDE}:ro", *([f"{self.work}:{self.work}"] if self.work else [])]
        passed = [f"{name}={os.environ[name]}" for name in self.passed if name in os.environ]
        if self.kind == "podman":
            # Process ids must be the machine's own: the agent ends tasks and reads their CPU time by them.
            words = ["podman", "run", "--rm", "--pid=host", "--network=host", "--security-opt=no-new-privileges",
                     "--preserve-fds=1", *LOWERED, *_each("--volume", mounts), *_each("--env", passed)]  # fmt: skip
        else:
            words = ["apptainer", "--quiet", "exec", "--contain", "--cleanenv", *_each("--bind", mounts),
                     *_each("--env", passed)]  # fmt: skip
        # Both hand on descriptor 3.
        as_third = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.execvp(sys.argv[2], sys.argv[2:])"
        return [sys.executable, "-P", "-c", as_third, str(control), *words, *inside]

    def folder(self, owner: str, workflow: str) -> Path:
        """Make the folder that a workflow's commands run in; only its owner's tasks look into it."""
        who, home = self.become(owner), self._home(owner)
        assert home is not None
        place = home / folder_name(workflow)
        self._make(place, None if who is None else who["uid"])
        return place

    def _home(self, owner: str) -> Path | None:
        return self.work / folder_name(owner or "nobody") if self.work is not None else None

    def _make(self, place: Path | None, uid: int | None) -> None:
        """Make a folder, a user's where it is one's. What the user put there in its place is not followed."""
        if place is None:
            return
        if uid is None:
            place.mkdir(parents=True, exist_ok=True)
            return
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o700)
        # The user owns the parent and may have put a link there, to a file of root's.
        os.chown(place, uid, uid, follow_symlinks=False)


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def choose(wanted: str, passed: tuple[str, ...] = (), python: str = sys.executable) -> Privileges:
    """Choose how tasks are kept apart here.

    Raises:
        InvalidInput: What was asked for cannot be had on this machine.
    """
    kind, _, image = wanted.partition(":")
    if kind in ("podman", "apptainer"):
        if not image or shutil.which(kind) is None:
            missing = "is not installed here" if image else "needs an image"
            raise InvalidInput("--tasks-as", f"{kind} {missing}: {kind}:IMAGE")
        if (said := _no_container(kind, image)) is not None:
            raise InvalidInput("--tasks-as", f"{wanted} runs no Python here: {said}")
        return Privileges(kind, image, f"tasks run in containers ({kind}, {image})", passed)
    if kind not in ("auto", "self", "users") or image:
        raise InvalidInput("--tasks-as", f"{wanted!r} is not one of {CHOICES}")
    made = Privileges("users", about="tasks run as a user id of their owner's", passed=passed)
    problem = "it was asked for" if kind == "self" else _problem(made, python)
    if problem is None:
        return made
    if kind == "users":
        raise InvalidInput("--tasks-as", f"tasks cannot have user ids of their own: {problem}")
    said = f"tasks run as the agent's own user ({problem}): they can read what it can, its tokens too"
    return Privileges("self", about=said, passed=passed)


def _no_container(kind: str, image: str) -> str | None:
    """Say why an image runs no task here; None where it does: a trial tells, which brings the image, too."""
    run = ["podman", "run", "--rm", *LOWERED] if kind == "podman" else ["apptainer", "--quiet", "exec", "--contain"]
    command = [*run, image, "python3", "-P", "-c", _TRIAL]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PULL_S)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    said = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
    return said[0] if done.returncode else None


def _problem(made: Privileges, python: str) -> str | None:
    """Say why tasks cannot become other users here; None where they can: a trial tells."""
    if os.geteuid() != 0:
        return "the agent is not root"
    who = made.become("")
    assert who is not None
    # Tried for real: modes of a whole path, mounts and security modules cannot be told from outside.
    command = [python, "-P", "-c", _TRIAL]
    try:
        subprocess.run(command, user=who["uid"], group=who["gid"], extra_groups=[], env=made.environment(), cwd="/",
                       capture_output=True, timeout=60, check=True)  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return f"others cannot run {python}"
    return None


def _device_groups() -> list[int]:
    found = []
    for name in GROUPS:
        try:
            found.append(grp.getgrnam(name).gr_gid)
        except KeyError:
            continue
    return found


def _own_folder(path: Path) -> Path:
    """Make a folder that others pass through and nobody else owns."""
    path.mkdir(mode=0o711, exist_ok=True)
    about = path.lstat()
    # lstat: in a folder that all may write to, somebody may have been there first.
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise InvalidInput(str(path), "belongs to somebody else; tasks would run in their folder")
    path.chmod(0o711)
    return path

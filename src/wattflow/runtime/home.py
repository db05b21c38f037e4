"""The folder where a server keeps everything, and where clients on the same machine find it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattflow.files.whole import small_text
from wattflow.model.errors import InvalidInput, WattflowError
from wattflow.runtime import processes

LONGEST_TOKEN = 4096
_OURS = (
    "agent", "cap.json", "learn", "logs", "objects", "server.", "simulated", "slurm", "store.", "tokens.", "up.lock",
)  # fmt: skip
"""How names in the folder begin that are a server's, beside its tokens."""


class NotRunning(WattflowError):
    """No server is running here."""


def read_token(path: Path) -> str:
    """Read the token in a file."""
    token = small_text(path, "token").strip()
    # Headers hold printable ASCII only; a wrong file must not be sent to a server.
    if not token or len(token) > LONGEST_TOKEN or not token.isascii() or not token.isprintable():
        raise InvalidInput(str(path), "holds no token: one line that `wattflow up` or its server's owner gave")
    return token


def json_object(path: Path, remedy: str) -> dict[str, Any]:
    """Read a JSON file of the server's folder, which was written whole: anything else in it is damage."""
    try:
        found = json.loads(path.read_text())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidInput(str(path), f"is damaged: {remedy}")
    return found


@dataclass(frozen=True, slots=True)
class Home:
    """Files of one server. Only their owner may look in."""

    folder: Path

    @classmethod
    def of(cls, folder: str | Path | None = None) -> Home:
        """The folder given, else ``WATTFLOW_HOME``, else ``~/.local/state/wattflow``."""
        named = folder or os.environ.get("WATTFLOW_HOME")
        default = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "wattflow"
        # A server goes on in it wherever its commands are typed.
        return cls((Path(named) if named else default).absolute())

    def make(self) -> None:
        """Make the folder; what a server left in it becomes its owner's alone.

        Raises:
            InvalidInput: It cannot be made, or is somebody's folder for other things, which nobody else may lose.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise InvalidInput(str(self.folder), f"cannot be made: {error.strerror}") from None
        found = sorted(self.folder.iterdir())
        ours = [path for path in found if path.name.startswith(_OURS) or path.suffix == ".token"]
        if found and not ours:
            what = (
                f"holds {found[0].name}, which is no server's: name an empty folder, since its owner alone may look in"
            )
            raise InvalidInput(str(self.folder), what)
        self._close_to_others(ours)

    def _close_to_others(self, ours: Sequence[Path]) -> None:
        """Take everybody else's rights away (0700, 0600): an older start, a backup or a umask may have left some."""
        for path in (self.folder, *ours):
            try:
                if not path.is_symlink() and path.stat().st_mode & 0o077:
                    path.chmod(0o700 if path.is_dir() else 0o600)
            except FileNotFoundError:
                continue
            except PermissionError:
                raise InvalidInput(
                    str(path), "can be read by others and belongs to somebody else: its owner must chmod it"
                ) from None

    @property
    def store(self) -> Path:
        return self.folder / "store.db"

    @property
    def objects(self) -> Path:
        return self.folder / "objects"

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens.json"

    @property
    def store_note(self) -> Path:
        return self.folder / "store.json"

    @property
    def server_file(self) -> Path:
        return self.folder / "server.json"

    def token_file(self, role: str) -> Path:
        """Where the token of a role lies."""
        return self.folder / f"{role}.token"

    def token(self, role: str) -> str:
        """The token of a role."""
        path = self.token_file(role)
        if not path.exists():
            raise NotRunning(f"no server has been started in {self.folder}; `wattflow up` starts one")
        return read_token(path)

    def server(self) -> dict[str, object] | None:
        """Where the server listens and its process, if it is alive. A file that a killed server left is none, whoever
        has its number by now."""
        # It may go at any moment, with its server.
        with contextlib.suppress(OSError):
            json_object(self.server_file, "end the server that wrote it, if it runs, and delete it")
        return processes.marked(self.server_file)

    def addresses(self) -> str:
        """Where the server is reached, and those that take over from it, with commas between."""
        try:
            others = [str(one) for one in json.loads(self.server_file.read_text()).get("others", [])]
        except (OSError, ValueError, AttributeError, TypeError):
            others = []
        alive = self.server()
        if alive is None and not others:
            return self.url()
        return ",".join([*([str(alive["url"])] if alive is not None else []), *others])

    def url(self) -> str:
        """Where the server listens."""
        about = self.server()
        if about is None:
            raise NotRunning(f"no server is running ({self.folder}); `wattflow up` starts one")
        return str(about["url"])

    def ca(self) -> str | None:
        """The certificate by which this machine's server is known, where it speaks TLS."""
        certificate = (self.server() or {}).get("ca")
        return str(certificate) if certificate is not None else None

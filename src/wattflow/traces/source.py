"""Files in and out: bounded reading, gzip without asking, and writing that leaves nothing half-written."""

from __future__ import annotations

import gzip
import io
import json
import stat
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wattflow.files.whole import whole_file
from wattflow.model.errors import InvalidInput
from wattflow.model.units import GIB, MIB

DOCUMENT_LIMIT_BYTES = 256 * MIB
"""A workflow document is never larger than this once unpacked; the largest shared one has 3 MB."""
DOCUMENT_LIMIT_VALUES = 16_000_000
"""A short text such as ``[],[],…`` grows twentyfold when parsed, so values are counted before."""
LOG_LIMIT_BYTES = 8 * GIB
"""A log is never larger than this once unpacked: about 1e8 rows of SWF."""
HEAD_BYTES = 64 * 1024
_GZIP = b"\x1f\x8b"
_SUFFIXES = (".gz", ".json", ".csv", ".tsv", ".txt", ".swf", ".parquet")


@dataclass(frozen=True, slots=True)
class Probe:
    """Show format detection a path and its first unpacked bytes (empty for a folder)."""

    path: Path
    folder: bool
    head: bytes = b""

    @property
    def name(self) -> str:
        """Return the lower-case file name without ``.gz``."""
        return self.path.name.lower().removesuffix(".gz")

    def text(self) -> str:
        # Cut anywhere: the last character of the head may be half of one.
        return self.head.decode("utf-8", "replace").removeprefix("\ufeff")

    def header(self) -> list[str]:
        """Return column names of a comma- or tab-separated table; a single-element list for other text."""
        first = self.text().split("\n", 1)[0].strip()
        # A tab among commas is part of a text.
        parts = first.split("\t" if "\t" in first and "," not in first else ",")
        return [part.strip().strip('"') for part in parts]

    def has(self, *parts: str) -> bool:
        """Tell whether the folder holds each of these files or folders."""
        return self.folder and all((self.path / part).exists() for part in parts)


def probe(path: Path) -> Probe:
    """Look at a path. Raises InvalidInput where there is nothing to read."""
    if path.is_dir():
        return Probe(path, True)
    head = _read(path, HEAD_BYTES, exact=False)
    if not head:
        raise InvalidInput(str(path), "the file is empty")
    return Probe(path, False, head)


def stem(path: Path) -> str:
    """Return the file's name without the endings that say how it is stored."""
    name = path.name
    # Endings come stacked: "log.csv.gz".
    while True:
        for suffix in _SUFFIXES:
            if name.lower().endswith(suffix) and len(name) > len(suffix):
                name = name[: -len(suffix)]
                break
        else:
            return name


def read_bytes(path: Path, limit: int = DOCUMENT_LIMIT_BYTES) -> bytes:
    """Read all unpacked bytes of a file; InvalidInput beyond ``limit``, long before memory is short."""
    return _read(path, limit, exact=True)


def read_text(path: Path, limit: int = DOCUMENT_LIMIT_BYTES) -> str:
    """Read the file as UTF-8 text."""
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(str(path), f"not text: byte {error.start} is not UTF-8") from None


def read_json(path: Path, limit: int = DOCUMENT_LIMIT_BYTES) -> object:
    """Read the file as JSON. NaN and infinities pass here, so that a validator can name their place."""
    text = read_text(path, limit)
    if not text.strip():
        raise InvalidInput(str(path), "the file is empty")
    # A cheap upper bound: each value follows one of these three. Texts may hold some too, which only
    # counts too many.
    if sum(map(text.count, ",[{")) > DOCUMENT_LIMIT_VALUES:
        raise InvalidInput(str(path), f"more than {DOCUMENT_LIMIT_VALUES:,} values, which no such file has")
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(str(path), f"not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    # A hostile file of brackets; json's scanner recurses.
    except RecursionError:
        raise InvalidInput(str(path), "not a workflow document: JSON nested too deeply") from None
    except ValueError as error:
        raise InvalidInput(str(path), f"not JSON: {error}") from None
    return value


def open_stream(path: Path) -> io.BufferedIOBase:
    """Open an unpacking stream over the file; the caller closes it. Errors on reading: see `stream_error`."""
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            # It is read twice, to tell its format and then whole; a pipe gives its bytes once, or waits for ever.
            raise InvalidInput(str(path), "is a pipe or a device; save its content to a file and name that")
        with path.open("rb") as raw:
            # By content, not by name: files are renamed.
            packed = raw.read(2) == _GZIP
        return gzip.open(path, "rb") if packed else path.open("rb")
    except OSError as error:
        raise InvalidInput(str(path), _os_problem(error)) from None


def stream_error(path: Path, error: Exception) -> InvalidInput:
    """Return the InvalidInput for what reading a stream of `open_stream` may raise."""
    if isinstance(error, EOFError):
        return InvalidInput(str(path), "the gzip file is truncated; fetch or unpack it again")
    if isinstance(error, gzip.BadGzipFile | zlib.error):
        return InvalidInput(str(path), f"the gzip file is damaged ({error}); fetch or unpack it again")
    if isinstance(error, OSError):
        return InvalidInput(str(path), _os_problem(error))
    return InvalidInput(str(path), str(error))


def _read(path: Path, limit: int, *, exact: bool) -> bytes:
    """Read at most ``limit`` unpacked bytes; with ``exact`` a longer file is an error."""
    chunks: list[bytes] = []
    # One byte more than allowed tells "too large" from "just fits".
    left = limit + 1 if exact else limit
    stream = open_stream(path)
    try:
        with stream:
            # In pieces, so that a packed bomb is stopped at the limit and not after unpacking.
            while left > 0 and (chunk := stream.read(min(left, MIB))):
                chunks.append(chunk)
                left -= len(chunk)
    except (EOFError, zlib.error, OSError) as error:
        raise stream_error(path, error) from None
    if exact and left <= 0:
        raise InvalidInput(str(path), f"larger than {limit / MIB:,.0f} MiB once unpacked, which no such file is")
    return b"".join(chunks)


def _os_problem(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such file"
        case IsADirectoryError():
            return "this is a folder, a file is needed"
        case PermissionError():
            return "not allowed to read it"
        case _:
            return error.strerror or str(error)


def write_atomic(path: Path, data: bytes) -> None:
    """Write a whole file, or none of it; packed where the name ends in .gz."""
    # No name and no time in the header: the same workload gives the same bytes.
    packed = gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data
    with whole_file(path) as draft:
        draft.write_bytes(packed)


def write_folder_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Fill a temporary folder beside ``path``, then rename it; an older folder of that name is replaced."""
    import shutil
    import tempfile

    _need_parent(path)
    if path.exists() and not path.is_dir():
        raise InvalidInput(str(path), "this is a file, a folder name is needed")
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        write(temporary)
        temporary.chmod(0o755)
        if path.exists():
            old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.old."))
            # A folder cannot be replaced in one step; moved away first, it is missing for a moment, never
            # half-written.
            path.replace(old / path.name)
            temporary.replace(path)
            shutil.rmtree(old)
        else:
            temporary.replace(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _need_parent(path: Path) -> None:
    if not path.parent.is_dir():
        raise InvalidInput(str(path), f"the folder {path.parent} does not exist")

"""Where compiled code is kept: a folder named by a hash of all sources that can take part.

numba's own cache does not notice a change in a function of another file, goes by the files' times, and can be moved
only for the whole process. Here each function has its cache: in ``WATTFLOW_CACHE`` (or ``NUMBA_CACHE_DIR``), else
``~/.cache/wattflow``, else, where that cannot be written, a folder of the user's own below the temporary one; where
nothing can be written, code is compiled in memory each time. A package may carry code in ``wattflow/compiled``.
Code compiled for any processor of this architecture (`wattflow warm`) serves where there is none for this very one.

The files are numba's, which are pickles: a cache folder must be as trustworthy as the program itself.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numba
from numba.core import caching

_log = logging.getLogger(__name__)
_PACKAGE = Path(__file__).parents[1]
CARRIED = _PACKAGE / "compiled"
"""Compiled code that came with the package."""


@functools.cache
def name(*parts: str, marks: str = "") -> str:
    """Name of the folder for compiled code of these packages (or single files): a hash of all their sources."""
    # numba's version, too: another one reads neither the files nor the code.
    digest = hashlib.sha256((numba.__version__ + marks).encode())
    for part in parts:
        place = _PACKAGE / part
        for source in [place] if part.endswith(".py") else sorted(place.glob("**/*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def base() -> Path | None:
    """Return the folder of all caches; None where none can be written."""
    for variable in ("WATTFLOW_CACHE", "NUMBA_CACHE_DIR"):
        if os.environ.get(variable):
            return Path(os.environ[variable])
    try:
        home = Path.home() / ".cache" / "wattflow"
        home.mkdir(parents=True, exist_ok=True)
        if os.access(home, os.W_OK):
            return home
    except (OSError, RuntimeError):
        pass  # no home, or none that can be written
    return _temporary()


def _temporary() -> Path | None:
    """Return a folder below the temporary one that nobody else can write to."""
    folder = Path(tempfile.gettempdir()) / f"wattflow-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Without following a link: whoever puts one there could have us load code of theirs.
        status = folder.lstat()
    except OSError:
        return None
    if folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
        _log.warning("%s belongs to or is open to others; compiled code is not kept", folder)
        return None
    return folder


@functools.cache
def _content(file: str) -> str:
    # By content, not by time: a checkout or an installation gives the same source another time.
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""


def _place(file: str) -> str:
    """Return a file's place as seen from the package, so that code compiled elsewhere serves where it is installed."""
    path = Path(file)
    return path.relative_to(_PACKAGE).as_posix() if path.is_relative_to(_PACKAGE) else file


class _Locator(caching._CacheLocator):
    """A fixed folder; a function is fresh as long as its file's content is the same."""

    def __init__(self, function: Any, folder: Path) -> None:
        self._py_file, self._folder = inspect.getfile(function), folder
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(self._folder)

    def ensure_cache_path(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def get_source_stamp(self) -> str:
        return _content(self._py_file)

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        raise NotImplementedError("made by `FolderCache` alone")


class _Results(caching.CompileResultCacheImpl):
    def __init__(self, function: Any, folder: Path) -> None:
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Locator(function, folder)
        # Line and file alone would mix up functions that a loop makes.
        place = hashlib.sha256(f"{function.__module__} {_place(self._locator._py_file)}".encode()).hexdigest()[:8]
        full = f"{Path(self._locator._py_file).stem}-{place}.{function.__qualname__}"
        self._filename_base = self.get_filename_base(full, getattr(sys, "abiflags", ""))


class FolderCache(caching.FunctionCache):
    """numba's cache of one function in a folder of our choice; reading falls back on what the package carries."""

    def __init__(self, function: Any, folder: str) -> None:
        self._name, self._py_func = repr(function), function
        own = base()
        # What is read first is also what is written: code that the package carries stays as it came.
        places = [CARRIED / folder] if own is None else [own / folder, CARRIED / folder]
        self._writes = own is not None
        self._impl = _Results(function, places[0])
        self._cache_path = str(places[0])
        stamp = self._impl.locator.get_source_stamp()
        self._files = [caching.IndexDataCacheFile(str(place), self._impl.filename_base, stamp) for place in places]
        self._cache_file = self._files[0]
        self.enable()

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        if not self._enabled:
            return None
        own = self._index_key(sig, target_context.codegen())
        triple, *_ = own[1]
        # Code for any processor of this architecture last: it is slower than what was compiled for this one.
        for key in (own, (own[0], (triple, "generic", ""), own[2])):
            for file in self._files:
                data = _read(file, key)
                if data is not None:
                    return self._impl.rebuild(target_context, data)
        return None

    def _save_overload(self, sig: Any, data: Any) -> None:
        if not self._writes:
            return
        try:
            super()._save_overload(sig, data)
        except OSError as error:
            self._writes = False
            _log.info("compiled code is not kept: %s", error)


def _read(file: Any, key: Any) -> Any:
    try:
        return file.load(key)
    # Half-written or gone meanwhile: compiled anew, as if it had never been there.
    except (OSError, EOFError):
        return None


def attach(dispatcher: Any, function: Any, folder: str) -> None:
    """Give a compiled function its cache; with a numba that has changed, numba's own."""
    try:
        dispatcher._cache = FolderCache(function, folder)
    except (AttributeError, TypeError, OSError) as error:
        _log.info("numba's own cache is used: %s", error)
        dispatcher.enable_caching()

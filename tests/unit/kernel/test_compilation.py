"""How compiled code is made and kept: numba stays as it was for others, caches fall back, checks check."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wattflow.kernel import cache, jit

# Each test starts processes that load and compile anew.
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not jit.COMPILED, reason="about compiled code")]

_USER = """
import numba
from llvmlite import ir
before = (numba.core.codegen.CPUCodeLibrary.finalize, numba.config.CACHE_DIR)
import wattflow.kernel.handle, wattflow.sim.kernel
assert (numba.core.codegen.CPUCodeLibrary.finalize, numba.config.CACHE_DIR) == before, "changed at import"
from wattflow.kernel import jit

@jit.inner
def twice(x):
    return 2 * x

@jit.jit
def outer(x):
    return twice(x) + 1

@numba.njit
def mine(x):
    return x + 1

{prepare}
print(outer(4), mine(1), jit.is_patched())
print("call-threshold-bonus" in next(iter(outer.inspect_llvm().values())))
print("call-threshold-bonus" in next(iter(mine.inspect_llvm().values())))
"""


def _python(code: str, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    file = folder / "code.py"
    file.write_text(code)
    return subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        env=os.environ | {"WATTFLOW_CACHE": str(folder)} | settings, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_numba_is_changed_for_our_functions_alone_and_only_when_they_are_compiled(tmp_path: Path) -> None:
    done = _python(_USER.format(prepare=""), tmp_path)
    assert done.stdout.splitlines()[0] == "9 2 True", done.stderr
    assert done.stdout.splitlines()[2] == "False"


def test_the_change_can_be_switched_off(tmp_path: Path) -> None:
    done = _python(_USER.format(prepare=""), tmp_path, WATTFLOW_PATCH="0")
    assert done.stdout.splitlines() == ["9 2 False", "False", "False"], done.stderr


def test_a_numba_that_has_changed_is_left_as_it_is(tmp_path: Path) -> None:
    spoil = "usual = numba.core.codegen.CPUCodeLibrary.finalize\njit._all_called = lambda library: library.no_such_name"
    after = "\nassert numba.core.codegen.CPUCodeLibrary.finalize is usual"
    done = _python(_USER.format(prepare=spoil) + after, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "9 2 False"


_KEPT = """
from wattflow.kernel import cache, jit

@jit.jit
def f(x):
    return x + 1

f(1)
print(sum(f._cache_hits.values()) if hasattr(f, "_cache_hits") else f.stats.cache_hits, cache.base())
"""


def test_a_read_only_cache_serves_and_a_missing_one_is_not_needed(tmp_path: Path) -> None:
    first = _python(_KEPT, tmp_path)
    second = _python(_KEPT, tmp_path)
    assert [first.stdout.split()[0], second.stdout.split()[0]] == ["0", "1"], first.stderr + second.stderr
    locked = _python(_KEPT, tmp_path, WATTFLOW_CACHE="/proc/none")
    assert locked.stdout.split()[0] == "0", locked.stderr


def test_without_a_home_to_write_the_users_own_temporary_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "home").write_text("a file where the home should be")
    settings = {"WATTFLOW_CACHE": "", "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "temporary")}
    made = _python(_KEPT, tmp_path, **settings)
    folder = tmp_path / "temporary" / f"wattflow-{os.getuid()}"
    assert made.stdout.split() == ["0", str(folder)], made.stderr
    assert folder.stat().st_mode & 0o777 == 0o700
    assert _python(_KEPT, tmp_path, **settings).stdout.split()[0] == "1"
    folder.chmod(0o777)
    assert _python(_KEPT, tmp_path, **settings).stdout.split() == ["0", "None"]


def test_code_for_any_processor_serves_this_one(tmp_path: Path) -> None:
    first = _python(_KEPT, tmp_path, NUMBA_CPU_NAME="generic")
    assert first.stdout.split()[0] == "0", first.stderr
    assert _python(_KEPT, tmp_path).stdout.split()[0] == "1"


_RANGE = """
import numpy as np
from wattflow.kernel import jit
from wattflow.kernel.handle import Tables
from wattflow.kernel.records import record_table

class One(Tables):
    __slots__ = ("rows", "line", "field")
    NAMES = ("rows", "line", "field")

@jit.inner
def read(one, i, what):
    if what == 0:
        return one.rows[i].a
    if what == 1:
        return one.rows.a[i]
    if what == 2:
        one.line[i] += 1
        return one.line[i]
    one.field[1, i] = 7
    return one.field[1, i] + one.field[1][i] + one.field[:, 1][1]

@jit.jit
def outer(one, i, what):
    return read(one, i, what)

rows = record_table(np.dtype([("a", "i8")]), 4)
tables = One(rows=rows, line=np.arange(4), field=np.zeros((2, 4), np.int64))
print([outer(tables.handle(), 3, what) for what in range(4)])
for i in (4, -1):
    for what in range(4):
        try:
            outer(tables.handle(), i, what)
        except IndexError as problem:
            print(problem, tables.busy)
"""


def test_with_checks_an_index_out_of_range_is_an_error(tmp_path: Path) -> None:
    done = _python(_RANGE, tmp_path, WATTFLOW_CHECK="1")
    flat = [f"index out of range in Flat(int64, {kind}) False" for kind in ("1d, A", "1d, C", "2d, C")]
    assert done.stdout.splitlines() == ["[0, 0, 4, 14]", *["row out of range in table rows False", *flat] * 2], (
        done.stderr
    )


def test_folders_of_checked_and_unchecked_code_differ() -> None:
    assert cache.name("kernel", marks="checked") != cache.name("kernel")


_ELSEWHERE = """
import sys
sys.path.insert(0, {place!r})
from wattflow.engine import fit
assert fit.__file__.startswith({place!r})
fit.enough_nodes(3)
print(sum(fit.enough_nodes.stats.cache_hits.values()))
"""


def test_compiled_code_serves_a_package_that_lies_elsewhere(tmp_path: Path) -> None:
    """An image is warmed in one folder and may be installed in another: nothing is compiled a second time."""
    package, hits = Path(cache.__file__).parents[1], []
    for place in ("first", "second"):
        shutil.copytree(package, tmp_path / place / "wattflow", ignore=shutil.ignore_patterns("data", "__pycache__"))
        done = _python(_ELSEWHERE.format(place=str(tmp_path / place)), tmp_path)
        hits.append(done.stdout.strip())
        assert done.returncode == 0, done.stderr
    assert hits == ["0", "1"]


_OPTIONAL = """
import numpy as np
from wattflow.kernel import jit
from wattflow.kernel.handle import Tables
from wattflow.kernel.records import record_table
from numba import types

class Pair(Tables):
    __slots__ = NAMES = ("rows",)

@jit.optional("rare", types.int64)
def rare(pair, x):
    return pair.no_such_table[x].a

@jit.inner
def reached(pair, x):
    return rare(pair, x) if pair.rows[0].a == 7 else x + 1

def entry(pair, x):
    return reached(pair, x)

def compiled(kind):
    return jit.direct(jit.compiled(types.int64(kind, types.int64), entry, cache=False))

pair = Pair(rows=record_table(np.dtype([("a", "i8")]), 1))
print(compiled(pair.kind.without("rare"))(pair.handle(), 4))
try:
    compiled(pair.kind)
except Exception as error:
    print(type(error).__name__)
pair.rows["a"] = 7
try:
    print(compiled(pair.kind.without("rare"))(pair.handle(), 4) if jit.CHECKED else "unchecked")
except RuntimeError as error:
    print(error)
"""


def test_a_part_that_tables_lack_is_not_even_compiled(tmp_path: Path) -> None:
    done = _python(_OPTIONAL, tmp_path, WATTFLOW_CHECK="0")
    assert done.stdout.split() == ["5", "TypingError", "unchecked"], done.stderr


def test_where_tables_are_checked_a_part_that_was_said_to_be_lacking_is_an_error(tmp_path: Path) -> None:
    done = _python(_OPTIONAL, tmp_path, WATTFLOW_CHECK="1")
    assert done.stdout.splitlines()[2].startswith("a part of the code was called"), done.stderr

"""Functions of the predictors load where nothing can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import wattflow

PROGRAM = """
import numpy as np
from wattflow.predict import backbone, plain, serving, trees
print(backbone.medians.__name__)
"""


def test_predictors_load_from_a_package_that_is_read_only(tmp_path: Path) -> None:
    source = Path(wattflow.__file__).parent
    shutil.copytree(source, tmp_path / "wattflow", ignore=shutil.ignore_patterns("__pycache__"))
    # Files in place of the folders that numba would make: nobody can write there, root neither.
    (tmp_path / "wattflow" / "predict" / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")
    told = {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
    told |= {"XDG_CACHE_HOME": str(tmp_path / "home")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "PYTHON", "XDG_"))}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=kept | told, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "medians"

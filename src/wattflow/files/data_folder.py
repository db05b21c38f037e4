"""Where real data and packaged data are found."""

from __future__ import annotations

import gzip
import io
import os
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TextIO

from wattflow.model.errors import MissingData


def data_folder() -> Path | None:
    """Return the folder of real data, or None where it is not there.

    ``WATTFLOW_DATA`` names it; without that it is ``../shared/data`` beside a checkout.
    """
    named = os.environ.get("WATTFLOW_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[4] / "shared" / "data"
    # The manifest tells it from any folder of that name.
    return folder if (folder / "MANIFEST.csv").exists() else None


def data_file(*parts: str) -> Path:
    """Return a file of the folder of real data.

    Raises:
        MissingData: The folder or the file is not there.
    """
    folder = data_folder()
    name = "/".join(parts)
    if folder is None:
        raise MissingData(f"{name} needs the folder of real data; set WATTFLOW_DATA to it")
    path = folder.joinpath(*parts)
    if not path.exists():
        raise MissingData(f"{path} is not there; is WATTFLOW_DATA the right folder?")
    return path


def open_text(path: Path) -> TextIO:
    """Open a plain or gzipped text file."""
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def packaged(*parts: str) -> Traversable:
    """Return a file that ships with wattflow, below ``wattflow/data``."""
    return resources.files("wattflow").joinpath("data", *parts)

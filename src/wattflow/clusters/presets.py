"""Clusters by name: the packaged files."""

from __future__ import annotations

from pathlib import Path

from wattflow.clusters.toml_file import parse_cluster, read_cluster
from wattflow.files.data_folder import packaged
from wattflow.model.cluster import Cluster
from wattflow.model.errors import unknown_name


def preset_names() -> list[str]:
    """Return the names that ``load_cluster`` knows, in alphabetical order."""
    files = (entry.name for entry in packaged("clusters").iterdir())
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def preset_text(name: str) -> str:
    """Return the TOML of a packaged preset, comments included: a start for a user's own file."""
    if name not in preset_names():
        raise unknown_name("cluster", name, preset_names(), "(or the path of a .toml file)")
    return packaged("clusters", f"{name}.toml").read_text(encoding="utf-8")


def load_cluster(name_or_path: str | Path) -> Cluster:
    """Read a cluster by preset name or from a TOML file.

    Anything that ends in ``.toml``, has a folder in it or is a ``Path`` is a file; everything else is a name.

    Raises:
        InvalidInput: The file is wrong (all problems listed), or there is no such name (the nearest is named).
    """
    text = str(name_or_path)
    # A name never has a slash: files in the working folder are written "./my.toml" or "my.toml".
    if isinstance(name_or_path, Path) or text.endswith(".toml") or "/" in text or "\\" in text:
        return read_cluster(name_or_path)
    return parse_cluster(preset_text(text), f"preset {text}")

"""Clusters by name: the packaged files, and the Alibaba cluster of the data folder."""

from __future__ import annotations

from pathlib import Path

from wattflow.clusters import alibaba_cluster
from wattflow.clusters.toml_file import parse_cluster, read_cluster
from wattflow.files.data_folder import packaged
from wattflow.model.cluster import Cluster
from wattflow.model.errors import unknown_name

ALIBABA = "alibaba"
"""The one preset that is read from the folder of real data and not from a packaged file."""


def preset_names() -> list[str]:
    """Return the names that ``load_cluster`` knows, in alphabetical order."""
    files = (entry.name for entry in packaged("clusters").iterdir())
    return sorted([ALIBABA, *(name.removesuffix(".toml") for name in files if name.endswith(".toml"))])


def preset_text(name: str) -> str:
    """Return the TOML of a packaged preset, comments included: a start for a user's own file."""
    if name == ALIBABA or name not in preset_names():
        raise unknown_name("cluster file", name, [known for known in preset_names() if known != ALIBABA])
    return packaged("clusters", f"{name}.toml").read_text(encoding="utf-8")


def load_cluster(name_or_path: str | Path) -> Cluster:
    """Read a cluster by preset name or from a TOML file.

    Anything that ends in ``.toml``, has a folder in it or is a ``Path`` is a file; everything else is a name.

    Raises:
        InvalidInput: The file is wrong (all problems listed), or there is no such name (the nearest is named).
        MissingData: ``alibaba`` without the folder of real data.
    """
    text = str(name_or_path)
    # A name never has a slash: files in the working folder are written "./my.toml" or "my.toml".
    if isinstance(name_or_path, Path) or text.endswith(".toml") or "/" in text or "\\" in text:
        return read_cluster(name_or_path)
    if text == ALIBABA:
        return alibaba_cluster.load_alibaba()
    if text not in preset_names():
        raise unknown_name("cluster", text, preset_names(), "(or the path of a .toml file)")
    return parse_cluster(preset_text(text), f"preset {text}")

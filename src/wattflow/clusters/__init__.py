"""Clusters: files, presets, power profiles by name, and carbon and price series."""

from wattflow.clusters.describe import ClassRow, describe_cluster
from wattflow.clusters.profiles import list_profiles, resolve_profile
from wattflow.clusters.toml_file import cluster_toml, load_cluster, preset_names, read_cluster, write_cluster

__all__ = [
    "ClassRow",
    "cluster_toml",
    "describe_cluster",
    "list_profiles",
    "load_cluster",
    "preset_names",
    "read_cluster",
    "resolve_profile",
    "write_cluster",
]

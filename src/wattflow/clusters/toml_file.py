"""Read a cluster from a TOML file. ``docs/clusters.md`` describes every key."""

from __future__ import annotations

import tomllib
from pathlib import Path

from wattflow.clusters import carbon
from wattflow.clusters.node_table import build, read_network, read_nodes
from wattflow.files.reading import small_text
from wattflow.files.strict_table import Problems, StrictTable
from wattflow.model.cluster import Cluster, Node, Series, Zone
from wattflow.model.errors import InvalidInput, UnknownName, WattflowError


def read_cluster(path: Path | str) -> Cluster:
    """Read a cluster file.

    Raises:
        InvalidInput: Something is wrong with it; lists every problem with its place.
    """
    path = Path(path)
    text = small_text(path, "cluster file")
    return parse_cluster(text, str(path), path.parent)


def parse_cluster(text: str, source: str, folder: Path | None = None) -> Cluster:
    """Read a cluster from TOML text; ``folder`` is where its CSV files are looked for."""
    try:
        data = tomllib.loads(text)
    # `RecursionError`: a file of nested brackets.
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(source, f"is not TOML: {error}") from error
    problems = Problems()
    cluster = _read(StrictTable(data, "", problems), folder or Path())
    if len(problems) or cluster is None:
        raise InvalidInput(source, problems.listed())
    return cluster


def _read(root: StrictTable, folder: Path) -> Cluster | None:
    name, about, currency = root.text("name"), root.text("about", ""), root.text("currency", "USD")
    zones = tuple(_read_zone(zone, table, folder) for zone, table in root.named_tables("zones").items())
    nodes = read_nodes(root, folder)
    storage = read_network(root, "storage")
    if not root.data.get("nodes"):
        root.problem("", "needs at least one [[nodes]] table")
    root.finish()
    # After `finish`: scopes only matter where the nodes themselves are right.
    _check_scopes(root, nodes)
    if len(root.problems):
        return None
    facts = {"name": name, "nodes": tuple(nodes), "storage": storage, "about": about, "currency": currency}
    # A cluster without zones has one, of unknown carbon and price.
    return build(root, Cluster, **facts, zones=zones or (Zone(),))


def _check_scopes(root: StrictTable, nodes: list[Node]) -> None:
    """Refuse watts of different scopes: wall and package watts are never added up."""
    by_scope: dict[str, str] = {}
    for node in nodes:
        if node.power is not None:
            by_scope.setdefault(node.power.scope, node.name)
    if len(by_scope) > 1:
        shown = ", ".join(f"{name} is {scope} scope" for scope, name in by_scope.items())
        root.problem("nodes", f"watts of different scope in one cluster ({shown}); use one scope for all nodes")


def _read_zone(name: str, table: StrictTable, folder: Path) -> Zone:
    carbon_g = _read_series(table, "carbon", folder)
    price = _read_series(table, "price", folder)
    facts = {
        "name": name,
        "pue": table.number("pue", 1.0),
        "carbon": carbon_g or Zone().carbon,
        "price": price or Zone().price,
        # A value of 0 is something else than unknown, so it is noted whether it was stated.
        "carbon_known": carbon_g is not None,
        "price_known": price is not None,
    }
    table.finish()
    return build(table, Zone, **facts) or Zone(name)


def _read_series(zone: StrictTable, key: str, folder: Path) -> Series | None:
    """Read a number, the name of a series, or a table with values, a CSV file or a named series with a window."""
    value = zone.value(key)
    if value is None:
        return None
    if isinstance(value, int | float):
        # A number is a series of one value; the step does not matter.
        return Series(3600.0, (zone.number(key),))
    table = (
        StrictTable({"series": value}, zone.place(key), zone.problems) if isinstance(value, str) else zone.table(key)
    )
    if table is None:
        return None
    try:
        return _series_table(table, folder)
    except UnknownName as error:
        table.problem("", error.problems[0].what)
        return None
    except (ValueError, WattflowError) as error:
        table.problem("", str(error))
        return None
    finally:
        table.finish()


def _series_table(table: StrictTable, folder: Path) -> Series | None:
    ways = [key for key in ("values", "csv", "series") if table.has(key)]
    if len(ways) != 1:
        table.problem("", "give exactly one of values, csv or series")
        return None
    if ways == ["values"]:
        values = table.numbers("values")
        return Series(table.duration("step", 3600.0), values)
    window = carbon.SeriesWindow(table.text("start", ""), table.maybe_duration("length"))
    if ways == ["series"]:
        return carbon.named_series(table.text("series"), window).series
    return carbon.read_csv(folder / table.text("csv"), table.text("column", ""), window).series

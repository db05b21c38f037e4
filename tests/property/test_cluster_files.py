"""Any cluster survives being written and read; any text gives a cluster or a list of problems."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wattflow.clusters import cluster_toml, preset_names
from wattflow.clusters.toml_file import parse_cluster, preset_text, toml_lines
from wattflow.model.cluster import (
    SHARING,
    Cluster,
    Device,
    Faults,
    Frequency,
    Network,
    Node,
    Series,
    Serverless,
    Sleep,
    Zone,
)
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import FORMS, DeviceProfile, PowerProfile, Provenance, Scope

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
SOME = st.floats(0, 1e9, allow_nan=False)
POSITIVE = st.floats(1e-6, 1e6, allow_nan=False)
MAYBE = st.none() | POSITIVE


@st.composite
def points(draw: st.DrawFn, top: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    inner = draw(st.lists(st.integers(1, 999), max_size=4, unique=True))
    shares = sorted({0.0, *(share / 1000 for share in inner), 1.0})
    watts = draw(st.lists(SOME, min_size=len(shares), max_size=len(shares)))
    return tuple(share * top for share in shares), tuple(watts)


@st.composite
def devices(draw: st.DrawFn) -> Device:
    share, watts = draw(points(1.0))
    power = DeviceProfile(share, watts, draw(st.sampled_from(Provenance)), draw(TEXT))
    return Device(
        draw(st.sampled_from(["gpu", "fpga"])), draw(TEXT), draw(st.integers(0, 2**40)),
        draw(st.sampled_from(SHARING)), draw(st.integers(1, 16)), draw(POSITIVE), draw(SOME), draw(SOME),
        draw(st.sampled_from([power, DeviceProfile()])), draw(MAYBE),
    )  # fmt: skip


@st.composite
def nodes(draw: st.DrawFn, scope: Scope, zones: list[str]) -> Node:
    cores, threads_per_core = draw(st.integers(1, 64)), draw(st.integers(1, 4))
    threads = cores * threads_per_core
    busy, watts = draw(points(float(threads)))
    form = PowerProfile.from_form(draw(st.sampled_from(sorted(FORMS))), threads, draw(SOME), draw(SOME), scope=scope)
    curve = PowerProfile(busy, watts, scope, draw(st.sampled_from(Provenance)), draw(TEXT))
    return Node(
        name=draw(NAME),
        cores=cores,
        memory_bytes=draw(st.integers(0, 2**50)),
        threads_per_core=threads_per_core,
        smt_slowdown=draw(st.floats(1, 4)),
        allocatable_cores=draw(MAYBE),
        speed=draw(POSITIVE),
        function_speed=draw(st.dictionaries(TEXT, POSITIVE, max_size=2)),
        architecture=draw(TEXT),
        features=tuple(draw(st.lists(TEXT, max_size=2))),
        zone=draw(st.sampled_from(zones)),
        power=draw(st.sampled_from([None, curve, form])),
        tdp_w=draw(MAYBE),
        devices=tuple(draw(st.lists(devices(), max_size=2))) * draw(st.integers(1, 2)),
        network=draw(st.builds(Network, POSITIVE, SOME, SOME, SOME)),
        frequencies=(Frequency(), *draw(st.lists(st.builds(Frequency, POSITIVE, SOME), max_size=1))),
        sleep=draw(st.none() | st.builds(Sleep, SOME, SOME, SOME, MAYBE, MAYBE)),
        keep_alive_s=draw(SOME | st.just(float("inf"))),
        cold_start_factor=draw(SOME),
        serverless=draw(st.none() | st.builds(Serverless, SOME, SOME, POSITIVE, SOME, SOME)),
        faults=draw(st.none() | st.builds(Faults, POSITIVE, SOME, SOME)),
        price_per_hour=draw(SOME),
        embodied_kg=draw(SOME),
        lifetime_years=draw(POSITIVE),
    )


def series() -> st.SearchStrategy[Series]:
    return st.builds(Series, POSITIVE, st.lists(SOME, min_size=1, max_size=3).map(tuple))


@st.composite
def zones(draw: st.DrawFn, name: str) -> Zone:
    zone = Zone(name, pue=draw(st.floats(1, 3)))
    if draw(st.booleans()):
        zone = dataclasses.replace(zone, carbon=draw(series()), carbon_known=True)
    if draw(st.booleans()):
        zone = dataclasses.replace(zone, price=draw(series()), price_known=True)
    return zone


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    names = draw(st.lists(NAME, min_size=1, max_size=2, unique=True))
    scope = draw(st.sampled_from(Scope))
    kinds = draw(st.lists(nodes(scope, names), min_size=1, max_size=3, unique_by=lambda node: node.name))
    made: list[Node] = []
    for kind in kinds:
        count = draw(st.integers(0, 3))
        repeated = [dataclasses.replace(kind, name=f"{kind.name}-{i}") for i in range(count)]
        made += repeated or [kind]
    seen = {node.name: node for node in made}
    return Cluster(
        draw(TEXT), tuple(seen.values()), tuple(draw(zones(name)) for name in names),
        draw(st.builds(Network, POSITIVE, SOME, SOME, SOME)), draw(TEXT),
    )  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_a_cluster_survives_writing_and_reading(cluster: Cluster) -> None:
    assert parse_cluster(cluster_toml(cluster), "written") == cluster


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([name for name in preset_names() if name != "bench-5000"]),
    st.lists(
        st.tuples(
            st.floats(0, 1),
            st.integers(0, 40),
            st.sampled_from(
                ["", "x", "-1", "nan", "inf", "1e999", "[", "{}", '""', "true", "9" * 30, "\x00", "=", "\n"]
            ),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_damaged_files_give_a_cluster_or_a_list_of_problems(name: str, cuts: list[tuple[float, int, str]]) -> None:
    text = preset_text(name)
    for where, length, instead in cuts:
        at = int(where * len(text))
        text = text[:at] + instead + text[at + length :]
    try:
        cluster = parse_cluster(text, "damaged", Path("nowhere"))
    except InvalidInput as error:
        assert error.problems
        assert str(error)
    else:
        assert cluster.nodes


KEYS = st.sampled_from(
    [
        "name",
        "about",
        "zones",
        "nodes",
        "templates",
        "storage",
        "cores",
        "memory",
        "power",
        "sleep",
        "devices",
        "kind",
        "carbon",
        "price",
        "values",
        "csv",
        "series",
        "step",
        "form",
        "idle_w",
        "full_w",
        "busy",
        "watts",
        "load",
        "share",
        "count",
        "template",
        "frequencies",
        "speed",
        "serverless",
        "faults",
        "network",
    ]
)
VALUES: st.SearchStrategy[object] = st.recursive(
    st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | TEXT | st.sampled_from(["t", "1 GiB", "2s", "wall"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | TEXT, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_table_gives_a_cluster_or_a_list_of_problems(data: dict[str, object]) -> None:
    try:
        parse_cluster("\n".join(toml_lines(data)), "generated", Path("nowhere"))
    except InvalidInput as error:
        assert error.problems

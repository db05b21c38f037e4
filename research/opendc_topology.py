"""OpenDC 2.4 ``topology.json`` as a cluster: what its simulator and ours are held against each other on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from wattflow.model.cluster import Cluster, Device, Node
from wattflow.model.errors import InvalidInput
from wattflow.model.profile import FORMS, DeviceProfile, PowerProfile
from wattflow.model.units import size_bytes
from wattflow.traces.source import Probe, read_json
from wattflow.traces.wfformat_schema import Check

MOST_NODES = 1_000_000


def claims_topology(probe: Probe) -> bool:
    """Tell whether this is a topology, which `read_topology` reads."""
    return not probe.folder and '"clusters"' in probe.text() and '"hosts"' in probe.text()


def read_topology(path: Path, demand_mhz: float | None = None) -> Cluster:
    """Read a topology as a cluster.

    Args:
        path: The file.
        demand_mhz: MHz that tasks ask of a core. Hosts with slower cores take longer by that ratio; faster cores
            gain nothing, as in OpenDC. Without it all hosts have speed 1.
    """
    try:
        return _cluster(path, demand_mhz)
    except ValueError as error:
        raise InvalidInput(str(path), str(error)) from None


def _cluster(path: Path, demand_mhz: float | None) -> Cluster:
    check = Check()
    nodes: list[Node] = []
    for at, cluster in check.objects(_object(path), "clusters", "$"):
        prefix = check.text(cluster, "name", at) or f"cluster{at}"
        for copy in range(_count(check, cluster, at)):
            for where, host in check.objects(cluster, "hosts", at):
                name = f"{prefix}{f'-{copy}' if copy else ''}-{check.text(host, 'name', where) or 'host'}"
                node = _host(check, host, where, demand_mhz)
                count = _count(check, host, where)
                # Before they are made: a count in the file may be any number.
                if len(nodes) + count > MOST_NODES:
                    raise InvalidInput(str(path), f"more than {MOST_NODES:,} hosts")
                # OpenDC's hosts of one entry share a name; a cluster's names are unique.
                nodes += [dataclasses.replace(node, name=f"{name}-{len(nodes) + i}") for i in range(count)]
    if not nodes:
        check.problem("$.clusters", "holds no host")
    if check.problems:
        raise InvalidInput(str(path), check.problems)
    about = "OpenDC topology: CPU watts by its closed-form model; power sources and batteries are not read."
    return Cluster(path.parent.name, tuple(nodes), about=about)


def _object(path: Path) -> dict[str, object]:
    raw = read_json(path)
    if not isinstance(raw, dict):
        raise InvalidInput(str(path), "must be a JSON object")
    return raw


def _count(check: Check, holder: dict[str, object], where: str) -> int:
    count = check.whole(holder, {"count": 1.0}, where)
    # One more than the limit is enough to be refused, and a huge count must not overflow sums.
    return 1 if count is None else min(count, MOST_NODES + 1)


def _host(check: Check, host: dict[str, object], where: str, demand_mhz: float | None) -> Node:
    cpu = check.inner(host, "cpu", where) or check.inner(host, "cpuModel", where) or {}
    memory = check.inner(host, "memory", where) or {}
    cores = (check.whole(cpu, {"coreCount": 1.0}, f"{where}.cpu") or 0) * _count(check, cpu, f"{where}.cpu")
    speed = _quantity(check, cpu, "coreSpeed", f"{where}.cpu", _mhz)
    if not 0 < cores <= 100_000 or not speed:
        check.problem(f"{where}.cpu", "needs a coreCount of 1 to 100,000 and a coreSpeed above 0")
        # Values that let reading go on, so that all problems are told at once.
        cores, speed = 1, 1.0
    size = _quantity(check, memory, "memorySize", f"{where}.memory", size_bytes)
    if size is None:
        check.problem(f"{where}.memory", "needs a memorySize in bytes")
    # Both names are in use.
    model = check.inner(host, "cpuPowerModel", where) or check.inner(host, "powerModel", where)
    return Node(
        name="",
        cores=cores,
        memory_bytes=int(size or 0),
        speed=1.0 if demand_mhz is None else min(1.0, speed / demand_mhz),
        power=None if model is None else _power(check, model, f"{where}.cpuPowerModel", cores),
        devices=_gpus(check, host, where),
    )


def _mhz(text: str) -> float:
    number, unit = text.strip().rstrip("zZhH").strip(), text.strip().lower()
    factor = 1000.0 if unit.endswith("ghz") else 1e-3 if unit.endswith("khz") else 1.0
    return float(number.rstrip("gGmMkK ").strip()) * factor


def _quantity(
    check: Check, holder: dict[str, object], key: str, where: str, parse: Callable[[str], float]
) -> float | None:
    """Read a plain number, or text with a unit."""
    raw = holder.get(key)
    if isinstance(raw, str):
        try:
            return check.as_number(parse(raw), f"{where}.{key}", 0.0)
        except (ValueError, OverflowError):
            check.problem(f"{where}.{key}", f"cannot be read: {raw[:40]!r}")
            return None
    return check.number(holder, {key: 1.0}, where)


def _watts(check: Check, model: dict[str, object], where: str) -> tuple[str, float, float] | None:
    """Return the form, idle and full watts of a power model."""
    form = (check.text(model, "modelType", where) or "linear").lower()
    if form not in FORMS:
        check.problem(f"{where}.modelType", f"{form!r} is not known; known: {', '.join(FORMS)}")
        return None
    idle = check.number(model, {"idlePower": 1.0}, where)
    full = check.number(model, {"power": 1.0} if form == "constant" else {"maxPower": 1.0}, where)
    if full is None or (idle is None and form != "constant"):
        check.problem(where, "needs power" if form == "constant" else "needs idlePower and maxPower")
        return None
    # A constant model draws the same idle.
    return form, full if idle is None or form == "constant" else idle, full


def _power(check: Check, model: dict[str, object], where: str, cores: int) -> PowerProfile | None:
    watts = _watts(check, model, where)
    if watts is None:
        return None
    form, idle, full = watts
    return PowerProfile.from_form(form, cores, idle, full, source=f"OpenDC topology, {form} model")


def _gpus(check: Check, host: dict[str, object], where: str) -> tuple[Device, ...]:
    gpu = check.inner(host, "gpu", where)
    if gpu is None:
        return ()
    model = check.inner(host, "gpuPowerModel", where)
    watts = None if model is None else _watts(check, model, f"{where}.gpuPowerModel")
    profile = DeviceProfile()
    if watts is not None:
        steps = tuple(i / 20 for i in range(21))
        form, idle, full = watts
        profile = DeviceProfile(steps, tuple(idle + (full - idle) * FORMS[form](u) for u in steps))
    size = _quantity(check, gpu, "memorySize", f"{where}.gpu", size_bytes)
    device = Device("gpu", check.text(gpu, "modelName", f"{where}.gpu") or "generic", int(size or 0), power=profile)
    return (device,) * min(_count(check, gpu, f"{where}.gpu"), 1024)

"""Hypothesis strategies: workflows with everything that a document can hold."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from wattflow.model.profile import Provenance
from wattflow.model.workflow import File, Function, Machine, Task, Variant, Workflow

PLAIN = "abcdefghijklmnopqrstuvwxyzABCXYZ0123456789_-.#"
ODD = PLAIN + " /:()äß→'\"\\,"


def seconds(most: float = 1e6) -> SearchStrategy[float]:
    """Draw times from 0 up, zero and whole numbers among them."""
    return st.one_of(
        st.just(0.0), st.integers(1, 1000).map(float), st.floats(0, most, allow_nan=False, allow_infinity=False)
    )


def variants() -> SearchStrategy[Variant]:
    """Draw a way to run a task: on cores, on shares of a GPU, on several GPUs, on an FPGA."""
    sizes = st.integers(0, 2**40)
    cpu = st.builds(
        Variant,
        cores=st.sampled_from([0.25, 1.0, 2.0, 3.5, 48.0]),
        memory_bytes=sizes,
        architecture=st.sampled_from([None, "x86_64", "aarch64"]),
        features=st.lists(st.sampled_from(["avx512", "sgx", "nvme"]), unique=True, max_size=2).map(tuple),
        runtime_factor=st.floats(0.1, 10),
    )
    share = st.builds(
        Variant,
        name=st.just("gpu"),
        device=st.just("gpu"),
        devices=st.just(1),
        device_share=st.floats(0.05, 1.0),
        device_memory_bytes=sizes,
        device_models=st.sampled_from([(), ("A100",), ("V100M16", "V100M32")]),
    )
    whole = st.builds(Variant, name=st.just("gpus"), device=st.just("gpu"), devices=st.integers(2, 8))
    fpga = st.builds(Variant, name=st.just("fpga"), device=st.just("fpga"), devices=st.just(1))
    return st.one_of(st.just(Variant()), cpu, share, whole, fpga)


def workflows(
    max_tasks: int = 8, *, odd_names: bool = False, unknown_runtimes: bool = False
) -> SearchStrategy[Workflow]:
    """Draw workflow documents: any DAG, with files, machines, functions, variants, parts and energy.

    Args:
        max_tasks: The most tasks of one workflow; at least one.
        odd_names: Also ids that a format may not be able to spell.
        unknown_runtimes: Also tasks without a runtime.
    """

    @st.composite
    def workflow(draw: DrawFn) -> Workflow:
        letters = st.text(ODD if odd_names else PLAIN, min_size=1, max_size=8)
        ids = draw(st.lists(letters, min_size=1, max_size=max_tasks, unique=True))
        files = draw(st.lists(letters, max_size=5, unique=True))
        machines = draw(st.lists(st.sampled_from(["n1", "n2", "n3"]), max_size=3, unique=True))
        functions = ["align", "sort", "train"]
        tasks = [_task(draw, (i, ids), files, (machines, functions, unknown_runtimes)) for i in range(len(ids))]
        # Shuffled: readers must not rely on parents standing before their children.
        order = draw(st.permutations(range(len(tasks))))
        return Workflow(
            name=draw(letters),
            tasks=tuple(tasks[i] for i in order),
            files=tuple(File(id, draw(st.integers(0, 2**50))) for id in files),
            machines=tuple(_machine(draw, name) for name in machines),
            functions=draw(st.sampled_from([(), (Function("align", cold_start_s=1.5, failure_rate=0.1),)])),
            submit_s=draw(seconds()),
            deadline_s=draw(st.none() | seconds()),
            makespan_s=draw(st.none() | seconds()),
            # A time that cannot be read is among them.
            executed_at=draw(st.sampled_from([None, "2024-05-06T07:08:09+00:00", "20200401T035043+0000", "monday"])),
            created_at=draw(st.sampled_from([None, "2024-05-06T07:08:09Z"])),
            description=draw(st.sampled_from([None, "two words"])),
            attributes=draw(st.sampled_from([{}, {"author": {"name": "a", "email": "b"}, "more": [1, None, "x"]}])),
        )

    return workflow()


def _machine(draw: DrawFn, name: str) -> Machine:
    return Machine(
        name,
        cores=draw(st.none() | st.integers(1, 256)),
        memory_bytes=draw(st.none() | st.integers(1, 2**45)),
        speed_mhz=draw(st.none() | st.sampled_from([1200.0, 2600.5])),
        cpu_vendor=draw(st.sampled_from([None, "GenuineIntel"])),
        architecture=draw(st.sampled_from([None, "x86_64"])),
        system=draw(st.sampled_from([None, "linux", "plan9"])),
    )


def _task(
    draw: DrawFn, place: tuple[int, list[str]], files: list[str], pools: tuple[list[str], list[str], bool]
) -> Task:
    """Draw one task whose parents come before it in the list of ids."""
    (index, ids), (machines, functions, unknown) = place, pools
    # Only tasks before it, so that every draw is a DAG.
    above = st.lists(st.sampled_from(ids[:index]), unique=True, max_size=3) if index else st.just(list[str]())
    some = st.lists(st.sampled_from(files), unique=True, max_size=3) if files else st.just(list[str]())
    energy = draw(st.none() | seconds(1e9))
    runtime: float | None = draw(st.none() | seconds()) if unknown else draw(seconds())
    whole = st.none() | st.integers(0, 2**50)
    return Task(
        id=ids[index],
        name=draw(st.sampled_from([ids[index], "sort_ID0001"])),
        function=draw(st.sampled_from(functions)),
        runtime_s=runtime,
        variants=tuple(draw(st.lists(variants(), min_size=1, max_size=3))),
        parents=tuple(draw(above)),
        inputs=tuple(draw(some)),
        outputs=tuple(draw(some)),
        # Mostly one part; shrinking goes to the first.
        parts=draw(st.sampled_from([1, 1, 1, 4])),
        submit_s=draw(st.just(0.0) | seconds()),
        deadline_s=draw(st.none() | seconds()),
        estimate_s=draw(st.none() | seconds()),
        machine=draw(st.sampled_from([None, *machines])),
        start_s=draw(st.none() | seconds()),
        command=draw(st.sampled_from([None, "run", "a b\nc"])),
        arguments=draw(st.sampled_from([(), ("-x", "1"), ("",)])),
        avg_cpu_pct=draw(st.none() | st.floats(0, 5000)),
        peak_memory_bytes=draw(whole),
        read_bytes=draw(whole),
        written_bytes=draw(whole),
        priority=draw(st.none() | st.floats(0, 100)),
        energy_j=energy,
        avg_power_w=draw(st.none() | st.floats(0, 1e4)),
        energy_provenance=None if energy is None else draw(st.sampled_from([None, *Provenance])),
        energy_error=draw(st.none() | st.floats(0, 1)),
    )

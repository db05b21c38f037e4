"""Joules from `sacct`: what it says, when it says nothing yet, and sites without it."""

from __future__ import annotations

import asyncio

from wattflow.runtime.drivers.slurm import TRIES, SlurmEnergy


class Sacct:
    """Plays `sacct` with the answers given, the last one for ever."""

    def __init__(self, *answers: tuple[int, str]) -> None:
        self.answers, self.asked = list(answers), 0

    async def __call__(self, *command: str) -> tuple[int, str]:
        assert command[0] == "sacct" and "ConsumedEnergyRaw" in command[-1]
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_a_job_gets_its_cpus_share_and_a_band_up_to_the_whole_node() -> None:
    sacct = Sacct((0, ""), (0, "RUNNING|0\n"), (0, "COMPLETED|1000\n"))
    found = asyncio.run(SlurmEnergy(sacct, 0.0).of_job("7", 42, 0.25))
    assert found is not None and found.fence == 42
    assert (found.energy.energy_j, found.energy.provenance) == (250.0, "attributed")
    assert found.energy.low_j < 250.0 < 1000.0 < found.energy.high_j


def test_a_site_without_accounting_is_asked_once() -> None:
    sacct = Sacct((1, "Slurm accounting storage is disabled"))
    energy = SlurmEnergy(sacct, 0.0)
    for job in ("1", "2", "3"):
        assert asyncio.run(energy.of_job(job, 1, 1.0)) is None
    assert sacct.asked == 1


def test_accounting_without_an_energy_plugin_gives_nothing() -> None:
    sacct = Sacct((0, "COMPLETED|0\n"))
    assert asyncio.run(SlurmEnergy(sacct, 0.0).of_job("1", 1, 1.0)) is None
    assert sacct.asked == TRIES


def test_the_joules_of_a_batch_step_are_found_where_the_job_has_none() -> None:
    """As Slurm 22.05 answers for a job of `sbatch`; with steps beside each other the largest is the node's."""
    sacct = Sacct((0, "COMPLETED|\nRUNNING|\n"), (0, "COMPLETED|\nCOMPLETED|1160\nCOMPLETED|900\n"))
    found = asyncio.run(SlurmEnergy(sacct, 0.0).of_job("1", 1, 0.5))
    assert found is not None and found.energy.energy_j == 580.0 and sacct.asked == 2

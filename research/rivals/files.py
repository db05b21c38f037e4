"""Weights of rivals: ``.npz`` of plain arrays and a card in JSON, read without pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from research.rivals.agent import Agent
from research.rivals.kernel_network import KernelNetwork
from research.rivals.network import Net
from research.rivals.q_placement import QPlacement
from research.rivals.selector import Selector
from research.shipped import DATA
from wattflow.files.whole import whole_file
from wattflow.learn import episode
from wattflow.model.errors import InvalidInput

RIVALS: dict[str, type[Any]] = {kind.name: kind for kind in (Selector, KernelNetwork, QPlacement)}


def shipped(name: str, fold: int) -> Path:
    """The file in the package: a rival that was trained without a fold's applications, or (−1) on all."""
    return DATA / "rivals" / f"{file_name(name, fold)}.npz"


def file_name(name: str, fold: int) -> str:
    """As a run's files are called."""
    return f"{name}-fold-{fold}" if fold >= 0 else f"{name}-all"


def save(path: Path, agent: Agent) -> None:
    """Write what decides, and the card; whole or not at all."""
    card = {"rival": agent.name, "paper": agent.paper, "width": episode.WIDTH, **agent.card}
    with whole_file(path) as draft, draft.open("wb") as stream:
        np.savez(stream, card=np.array(json.dumps(card)), **agent.net.arrays("net"))


def load(path: Path) -> Agent:
    """A rival as it was saved.

    Raises:
        InvalidInput: No such file, no rival of ours, or one that reads other features.
    """
    try:
        with np.load(path, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files if name != "card"}
            card = json.loads(str(content["card"]))
            kind = RIVALS[card["rival"]]
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(str(path), f"holds no rival: {error}") from error
    if card.get("width") != episode.WIDTH:
        raise InvalidInput(
            str(path), f"reads {card.get('width')} numbers a row; the environment gives {episode.WIDTH}: train it anew"
        )
    agent: Agent = kind(Net.of_arrays("net", arrays), None, card)
    return agent

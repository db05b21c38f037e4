"""An empty matplotlib figure that needs no display."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wattflow.model.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float = 7.0, height: float = 4.2) -> Figure:
    """A figure of this many inches. Needs the extra ``report``."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("pictures need matplotlib: pip install 'wattflow[report]'") from error
    return Figure(figsize=(width, height), layout="constrained")

"""Whether a picture shows something: marks on a blank page are not enough to be one."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def colours(path: Path) -> int:
    """How many different colours a PNG has; a blank page has one."""
    from matplotlib.image import imread

    pixels = np.asarray(imread(path))
    return len(np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0))


def check_drawn(path: Path, *texts: str) -> None:
    """Assert that a PNG, SVG or PDF is whole and has curves; an SVG must also show these texts."""
    match path.suffix:
        case ".png":
            assert colours(path) > 20, f"{path.name} is nearly blank"
        case ".svg":
            content = path.read_text()
            assert content.rstrip().endswith("</svg>"), f"{path.name} is cut off"
            assert content.count("<path") > 20, f"{path.name} has no curves"
            for text in texts:
                assert f"<!-- {text} -->" in content or f">{text}<" in content, f"{path.name} lacks {text!r}"
        case ".pdf":
            content_b = path.read_bytes()
            assert content_b.startswith(b"%PDF") and b"%%EOF" in content_b[-32:], f"{path.name} is cut off"
        case ending:
            raise AssertionError(f"what is {ending}?")

"""Draw the pictures of docs/dashboard.md anew: every view in a real browser, over a demo run and a real server."""

from __future__ import annotations

import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from e2e.board_server import Server, new_token  # noqa: E402
from wattflow.generate.benchmark import DEMOS  # noqa: E402
from wattflow.lab.show.run_columns import More, run_columns  # noqa: E402
from wattflow.model.run import Run  # noqa: E402
from wattflow.sim.simulate import SimOptions, simulate  # noqa: E402
from web.browser import browse  # noqa: E402
from web.files_page import files_page  # noqa: E402
from web.test_live_browser import TASKS, at_flags, hold_up  # noqa: E402
from web.test_page_browser import READY, VIEWS  # noqa: E402

KEPT = ROOT / "docs" / "pictures"
COLOURS = 128


def demo(policy: str) -> Run:
    recipe = replace(DEMOS["mixed"], workflows=12)
    return simulate(recipe, "mixed", policy, options=SimOptions(record_power=True))


def main() -> None:
    """Take them all, and keep each with few colours: small enough for a repository."""
    runs = {"one": demo("least-energy:sleep=30"), "two": demo("fifo")}
    documents = {name: run_columns(run, More(about={"id": name})) for name, run in runs.items()}
    with tempfile.TemporaryDirectory() as folder:
        with files_page(documents, runs) as address:
            browse(address, "views", views=VIEWS, ready=READY, pictures=folder)
        server = Server(Path(folder))
        try:
            ann, ben = new_token(server, "ann"), new_token(server, "ben")
            server.submit("past", [{"key": f"part-{i}", "estimate_s": 1 + i % 3} for i in range(12)], ann)
            server.until_over("past", ann)
            hold_up(server, ann)
            threading.Thread(target=at_flags, args=(server, Path(folder), ann), daemon=True).start()
            parts = {"tasks": TASKS, "over": "past", "waiting": "stuck"}
            where = f"http://127.0.0.1:{server.port}/"
            browse(where, "live", ann=ann, ben=ben, folder=folder, parts=parts, pictures=folder)
        finally:
            server.stop()
        for picture in sorted(Path(folder).glob("dashboard-*.png")):
            few = Image.open(picture).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
            few.save(KEPT / picture.name, optimize=True)


if __name__ == "__main__":
    main()

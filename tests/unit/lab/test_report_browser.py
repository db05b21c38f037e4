"""The report in a real browser: it draws, sorts, filters, offers its figures, fits a phone and prints whole columns.

Needs Chromium or Chrome; skips by name without one (`make tools` installs it where apt can).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from wattflow.lab.show.report import report

from .comparisons import small_comparison

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs chromium (`make tools`)"),
]

PROBE = """
<script>
const seen = {errors: []};
window.addEventListener("error", (event) => seen.errors.push(event.message));
const names = (table) => [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.cells[0].dataset.v);
function look() {
  const table = document.querySelector("table.sort"), energy = table.querySelector('th[data-key="energy_j"]');
  seen.before = names(table);
  energy.click();
  seen.up = names(table);
  energy.click();
  seen.down = names(table);
  const box = document.querySelector(".filter input");
  box.value = "frug";
  box.dispatchEvent(new Event("input"));
  seen.filtered = names(table);
  seen.csv = window.wattflowPage.ofTable(table);
  const svgs = [...document.querySelectorAll("figure svg")];
  seen.svg = svgs.map((svg) => {
    const made = new DOMParser().parseFromString(window.wattflowPage.ofSvg(svg), "image/svg+xml");
    return made.documentElement.nodeName;
  });
  seen.buttons = [...document.querySelectorAll("figure .tools")].map((box) => box.textContent);
  const shown = [...document.querySelectorAll("#timelines figure")].map((figure) => figure.getBoundingClientRect());
  seen.beside = shown.length === 2 && shown[0].top === shown[1].top && shown[0].right <= shown[1].left;
  seen.drawn = [...document.querySelectorAll("#timelines canvas.chart")].map((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), colours = new Set();
    for (let i = 0; i < data.length; i += 4) colours.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
    return colours.size > 8;
  });
  seen.width = document.documentElement.scrollWidth;
  seen.room = innerWidth;
}
const marks = () => performance.getEntriesByName("wattflow-painted").length;
const painted = async () => {
  const marks = () => performance.getEntriesByName("wattflow-painted").length;
  for (let i = 0; i < 400 && marks() < 2; i++) await new Promise((go) => setTimeout(go, 25));
};
window.addEventListener("load", async () => {
  await painted();
  try { look(); } catch (error) { seen.errors.push(String(error)); }
  const out = document.createElement("pre");
  out.id = "seen";
  out.textContent = JSON.stringify(seen);
  document.body.append(out);
});
</script></body>"""


def browse(tmp_path: Path, *options: str) -> str:
    assert BROWSER is not None
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout


def look(tmp_path: Path, width: int) -> dict[str, object]:
    """The page as a window of this width shows it; a frame makes windows narrower than a browser's least."""
    inner = tmp_path / "inner.html"
    inner.write_text(report(small_comparison()).replace("</body>", PROBE), encoding="utf-8")
    frame = tmp_path / "frame.html"
    copy = """const look = setInterval(() => {
      const found = document.querySelector('iframe').contentDocument.querySelector('#seen');
      if (found) { clearInterval(look); document.body.append(found); }
    }, 20);"""
    frame.write_text(f'<iframe src="inner.html" width="{width}" height="900"></iframe><script>{copy}</script>')
    dom = browse(
        tmp_path, "--allow-file-access-from-files", "--virtual-time-budget=20000", "--window-size=1400,1000",
        "--dump-dom", frame.as_uri(),
    )  # fmt: skip
    found = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.S)
    assert found is not None, dom[-500:]
    seen: dict[str, object] = json.loads(unescape(found[1]))
    return seen


def test_it_draws_sorts_filters_and_offers_every_figure(tmp_path: Path) -> None:
    seen = look(tmp_path, 1280)
    assert seen["errors"] == []
    assert seen["before"] == ["fifo", "frugal"]
    assert seen["up"] == ["frugal", "fifo"] and seen["down"] == ["fifo", "frugal"]
    assert seen["filtered"] == ["frugal"]
    lines = str(seen["csv"]).splitlines()
    assert lines[0].startswith("policy,makespan_s,energy_j") and lines[1].startswith("frugal,18,3007.5")
    assert seen["svg"] == ["svg"] * 3 and seen["buttons"] == ["SVGCSV"] * 3
    assert seen["beside"] is True and seen["drawn"] == [True, True]


def test_a_phone_shows_it_without_scrolling_sideways(tmp_path: Path) -> None:
    seen = look(tmp_path, 390)
    assert seen["errors"] == [] and seen["room"] == 390
    assert isinstance(seen["width"], int) and seen["width"] <= 390
    assert seen["beside"] is False and seen["drawn"] == [True, True]

"""The page: whole, self-contained, honest about what it leaves out."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattflow.files.columns import Document, unpack
from wattflow.lab.show import report as page
from wattflow.lab.show.page import embedded
from wattflow.lab.show.report import report, write_report
from wattflow.lab.show.run_columns import GROUPS, lanes, machine_kinds, run_columns
from wattflow.lab.show.svg import Dot, scatter, stacked_bars, ticks
from wattflow.model.cluster import Cluster, Sleep

from .comparisons import small_comparison
from .runs import node, two_node_run

POWER_ROW = [("time_s", "f8"), ("node", "i4"), ("watts", "f8")]

VOID = {"meta", "br", "line", "rect", "circle", "path", "i"}


class Balance(HTMLParser):
    """Every opened tag is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open[-1] in VOID and self.open[-1] != tag:
            self.open.pop()
        assert self.open and self.open.pop() == tag, tag


def runs_of(text: str) -> list[dict[str, object]]:
    found = re.search(r'<script type="application/json" id="runs">(.*?)</script>', text, re.S)
    assert found is not None
    data: list[dict[str, object]] = json.loads(found[1])
    return data


def documents_of(text: str) -> list[Document]:
    kept = re.findall(r'<script type="text/plain" id="run-\d+">([^<]*)</script>', text)
    return [unpack(gzip.decompress(base64.b64decode(each))) for each in kept]


def test_the_page_is_well_formed_and_asks_nothing_of_the_network() -> None:
    text = report(small_comparison())
    parser = Balance()
    parser.feed(text)
    assert not [tag for tag in parser.open if tag not in VOID]
    assert {"h1", "svg", "table", "script", "style"} <= set(parser.seen)
    addresses = set(re.findall(r"https?://[^\"'`\s<]+", text))
    assert all(address.startswith("http://www.w3.org/") for address in addresses), "only names of XML are addresses"
    assert not re.search(
        r"\bsrc=|\bhref=\"(?!#)|@import|url\((?!#)", re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    )


def test_the_page_opens_with_the_answer_then_contents_then_two_timelines() -> None:
    text = report(small_comparison())
    order = [text.index(part) for part in ('class="answer"', "<nav", 'id="timelines"', 'class="scatter"', "<table")]
    assert order == sorted(order)
    assert "frugal against fifo: 25.0 % less energy" in text
    anchors = re.findall(r'<a href="#([\w-]+)"', text)
    assert len(anchors) == 6 and all(f'<section id="{anchor}">' in text for anchor in anchors)


def test_every_figure_and_table_carries_its_numbers() -> None:
    text = report(small_comparison())
    blocks = re.findall(r'<script type="application/json" class="rows">(.*?)</script>', text, re.S)
    assert len(blocks) == text.count("<figure") == 3
    assert [row["policy"] for row in json.loads(blocks[0])] == ["fifo", "frugal"]
    assert json.loads(blocks[0])[1]["energy_j"] == pytest.approx(3007.5)
    assert 'data-v="3007.5"' in text


def test_colours_are_kinds_of_machine() -> None:
    nodes = (node("big-0"), node("slow", 1.0), node("big-1"), *(node(f"odd-{i}", 2.0 + i) for i in range(9)))
    names, kind_of = machine_kinds(Cluster("c", nodes))
    assert names[:2] == ["big", "slow"] and names[-1] == "others" and len(names) == GROUPS
    assert kind_of[:4].tolist() == [0, 1, 0, 2] and kind_of.max() == GROUPS - 1


def test_a_sleeping_node_is_seen() -> None:
    log = np.array([(0.0, 0, 100.0), (4.0, 0, 3.0), (10.0, 0, 200.0), (0.0, 1, 50.0)], POWER_ROW)
    run = two_node_run(power_log=log)
    asleep = replace(run.cluster.nodes[0], sleep=Sleep(watts=3.0, wake_s=1.0))
    made = replace(run, cluster=Cluster("pair", (asleep, run.cluster.nodes[1])))
    comparison = replace(small_comparison(), runs={("three", "fifo"): made})
    (found,) = documents_of(report(comparison))
    sleep = found.tables["sleep"]
    assert [list(sleep[name]) for name in ("node", "from", "to")] == [[0], [4000], [10_000]]


def test_every_dot_is_named_when_few_and_names_do_not_cover_each_other() -> None:
    dots = [Dot(f"policy-{i}", 10.0 + 0.01 * i, 10.0 - 0.01 * i) for i in range(8)] + [Dot("far", 60.0, 60.0)]
    text = scatter(dots, "x", "y")
    boxes = [(float(x), float(y), 6.6 * len(name)) for x, y, name in
             re.findall(r'<text class="name" x="([\d.]+)" y="([\d.]+)">([^<]+)<', text)]  # fmt: skip
    named = re.findall(r'class="name"[^>]*>([^<]+)<', text)
    assert sum(1 + int(found[1]) if (found := re.search(r" \+ (\d+)", n)) else len(n.split(", ")) for n in named) == 9
    for (x, y, width), (u, v, wide) in itertools.combinations(boxes, 2):
        assert abs(y - v) >= 12 or x + width <= u or u + wide <= x


def test_a_dot_far_from_all_others_does_not_squeeze_them() -> None:
    dots = [Dot(f"p{i}", 10.0 + i, 20.0 - i) for i in range(6)] + [Dot("astray", 900.0, 15.5)]
    text = scatter(dots, "x", "y")
    across = sorted(float(x) for x in re.findall(r'<circle [^>]*cx="([\d.]+)"', text))
    assert len(across) == 6 and across[-1] - across[0] > 300
    assert text.count('<path class="dot') == 1 and "astray: 900" in text
    assert "astray → 900" in re.findall(r'class="name"[^>]*>([^<]+)<', text)


def test_of_many_dots_the_front_the_baseline_and_the_flagship_are_named() -> None:
    dots = [Dot(f"p{i}", float(i), 50.0 + i) for i in range(30)] + [Dot("base", 40.0, 90.0, marked=True)]
    text = scatter(dots, "x", "y", followed="p20")
    assert re.findall(r'class="name"[^>]*>([^<]+)<', text) == ["p0", "base", "p20"]


def test_names_cannot_break_out_of_the_page() -> None:
    text = report(small_comparison("</script><b>&", better='"><img'))
    assert runs_of(text)[0]["workload"] == "</script><b>&"
    assert "</script><b>" not in text
    assert '"><img' not in re.sub(r"<script.*?</script>", "", text, flags=re.S)


def test_the_page_shows_accounts_provenance_waits_and_notes() -> None:
    text = report(small_comparison())
    for word in ("Where the joules went", "cold start", "How the watts are known", "measured", "Where the time went",
                 "simulated", "a remark", "Pareto front", "fifo", "+25.0 %"):  # fmt: skip
        assert word in text, word


def test_a_page_of_a_comparison_without_kept_runs_has_no_timeline() -> None:
    text = report(replace(small_comparison(), runs={}))
    assert "Timelines" not in text and runs_of(text) == []


def test_runs_that_do_not_fit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_BYTES", 10)
    text = report(small_comparison())
    assert "1 of 2 timelines are left out" in text and len(documents_of(text)) == 1


def test_left_out_timelines_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_TIMELINES", 1)
    text = report(small_comparison())
    assert "1 of 2 timelines are left out" in text
    assert [run["policy"] for run in runs_of(text)] == ["fifo"]


def test_the_file_is_written_whole(tmp_path: Path) -> None:
    write_report(tmp_path / "r.html", small_comparison(), "a <title>")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert text.endswith("</html>\n") and "a &lt;title&gt;" in text


def test_an_embedded_run_is_the_dashboards_document_less_what_a_report_does_not_show() -> None:
    run = two_node_run()
    whole = unpack(run_columns(run))
    small = unpack(gzip.decompress(base64.b64decode(embedded("three", "fifo", run).text)))
    assert small.about == whole.about and small.strings == whole.strings
    for table, columns in small.tables.items():
        for name, values in columns.items():
            assert (
                np.allclose(values, whole.tables[table][name], rtol=1e-3, equal_nan=True)
                if isinstance(values, np.ndarray)
                else values == whole.tables[table][name]
            )
    assert set(whole.tables["attempts"]) - set(small.tables["attempts"]) >= {"lane", "marginal_j"}
    power = small.tables["power"]
    steps = [np.asarray(power[name]) for name in ("node", "time", "idle_w", "dynamic_w")]
    node, time, watts = steps[0], steps[1] / 1000.0, steps[2] + steps[3]
    ends = np.append(time[1:], run.span_s)
    ends[np.append(node[1:] != node[:-1], True)] = run.span_s
    assert ((ends - time) * watts).sum() == pytest.approx(4300.0, rel=1e-3)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=30))
def test_bars_of_one_lane_never_overlap_and_lanes_are_few(pairs: list[tuple[int, int]]) -> None:
    start = np.array([float(s) for s, _ in pairs])
    end = start + np.array([float(length) for _, length in pairs])
    lane = lanes(start, end)
    for number in set(lane.tolist()):
        mine = sorted(zip(start[lane == number], end[lane == number], strict=True))
        assert all(b[0] >= a[1] for a, b in itertools.pairwise(mine))
    touched = [int(np.sum((start <= s) & ((end > s) | (start == s)))) for s in start.tolist()]
    assert lane.max(initial=-1) + 1 <= max(touched, default=0)


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0.0, 10.0) == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert ticks(0.13, 0.29) == [0.15, 0.2, 0.25]
    assert ticks(3.0, 3.0) == [3.0]


def test_charts_of_nothing_say_so() -> None:
    assert "unknown" in scatter([], "x", "y")
    assert "Nothing to draw" in stacked_bars([("a", [0.0])], ["run"], "J")


def test_a_scatter_of_one_dot_and_of_equal_dots_can_be_drawn() -> None:
    assert scatter([Dot("a", 1.0, 2.0)], "x", "y").count("<circle") == 1
    assert scatter([Dot("a", 1.0, 2.0), Dot("b", 1.0, 2.0, 5.0, 5.0)], "x", "y").count("<circle") == 2

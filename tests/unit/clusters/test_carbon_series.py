"""Carbon series: shipped, from the data folder, and from a user's file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from wattflow.clusters.carbon import SeriesWindow, named_series, read_csv
from wattflow.model.errors import InvalidInput, UnknownName


@pytest.mark.parametrize(("name", "mean"), [("eia:CISO", 247.8), ("eia:ERCO", 359.2)])
def test_the_shipped_weeks(name: str, mean: float) -> None:
    dated = named_series(name)
    assert dated.start == datetime(2022, 9, 12, tzinfo=UTC)
    assert (dated.series.step_s, len(dated.series.values), dated.gaps) == (3600, 168, 0)
    assert dated.series.mean == pytest.approx(mean, abs=0.1)


def test_a_window_is_cut_out() -> None:
    whole = named_series("eia:CISO").series.values
    part = named_series("eia:CISO", SeriesWindow("2022-09-13T02:00", 4 * 3600.0))
    assert part.series.values == whole[26:30]
    assert part.start == datetime(2022, 9, 13, 2, tzinfo=UTC)
    for outside in (SeriesWindow("2021-01-01"), SeriesWindow("2022-09-12", 8 * 86400.0), SeriesWindow("2023-01-01")):
        with pytest.raises(InvalidInput, match="covers 2022-09-12 00:00 to 2022-09-19 00:00"):
            named_series("eia:CISO", outside)
    with pytest.raises(InvalidInput, match="is not a time"):
        named_series("eia:CISO", SeriesWindow("soon"))


def test_gaps_are_filled_and_counted_and_bad_rows_skipped(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(
        "A title\n# a remark\ntime, g, p\n2024-01-01 00:00,10,1\n2024-01-01 00:30,20,1\nnonsense,5,1\n"
        "2024-01-01 01:00,,1\n2024-01-01 01:30,40,1\n2024-01-01 02:00Z,50,1\n2024-01-01 02:15,70,1\n"
    )
    dated = read_csv(tmp_path / "s.csv", "g")
    assert dated.series.step_s == 1800
    assert dated.series.values == (10, 20, 20, 40, 60)  # an empty cell keeps 20; two rows of one step are averaged
    assert (dated.gaps, dated.skipped) == (1, 2)
    assert read_csv(tmp_path / "s.csv").series == dated.series


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no rows"),
        ("time,g\n", "0 usable rows"),
        ("time,g\n2024-01-01,1\n", "1 usable rows"),
        ("time,g\n2024-01-01,1\n2024-01-01,2\n", "same time"),
        ("time,g\n2024-01-01,1\n2024-01-02,nan\n", "1 usable rows"),
        ("time,g\n0001-01-01T00:00:00,1\n0001-01-01T00:00:01,1\n0001-01-01T00:00:02,1\n9999-01-01,1\n", "times right"),
    ],
)
def test_files_that_are_no_series(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(InvalidInput, match=told):
        read_csv(tmp_path / "s.csv")


def test_truncated_gzip_and_unknown_columns(tmp_path: Path) -> None:
    (tmp_path / "s.csv.gz").write_bytes(b"\x1f\x8b\x08\x00broken")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_csv(tmp_path / "s.csv.gz")
    (tmp_path / "s.csv").write_text("time,carbon\n2024-01-01,1\n2024-01-02,1\n")
    with pytest.raises(UnknownName, match="did you mean 'carbon'"):
        read_csv(tmp_path / "s.csv", "carbn")


def test_an_unknown_series_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="eia:CISO"):
        named_series("eia:CIS0")


@pytest.mark.data
def test_uneven_steps_are_brought_onto_one_grid(data_dir: Path) -> None:
    folder = data_dir / "carbon_intensity"
    files = (folder / "entsoe_2020_30min" / f"{zone}_ci.csv.gz" for zone in ("gb", "ger"))
    britain, germany = (read_csv(path, "Carbon Intensity") for path in files)
    assert (britain.series.step_s, germany.series.step_s) == (1800, 900)
    assert britain.series.values[0] == pytest.approx(120.995, abs=0.01)
    year = read_csv(folder / "eia_2022_hourly" / "CISO.csv.gz", "avg_CI", SeriesWindow("2022-09-12", 7 * 86400.0))
    assert year.series.values == pytest.approx(named_series("eia:CISO").series.values, abs=0.051)

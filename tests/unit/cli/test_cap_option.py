"""`simulate --cap-w`: what is typed is kept, what cannot be meant is refused, and results tell of it."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wattflow.cli.cap_option import capped, held_live, live_floor, write_live
from wattflow.cli.main import app
from wattflow.lab.run.run_file import read_run
from wattflow.model.errors import InvalidInput
from wattflow.policy import registry
from wattflow.runtime.cap_series import CapSeries

PLAIN = ("simulate", "map-reduce:tasks=6", "-c", "equal", "-p")


def typed(policy: str, cap: object, *more: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*PLAIN, policy, "--cap-w", str(cap), *map(str, more)])
    assert done.exit_code == code, done.output
    return done.output


def series(folder: Path, text: str) -> tuple[float, tuple[float, ...]]:
    file = folder / "cap.csv"
    file.write_text(text, encoding="utf-8")
    cap, _ = capped(str(file), "power-cap")
    assert cap is not None
    return cap.series.step_s, cap.series.values


def test_settings_of_the_policy_stay_beside_a_cap() -> None:
    text = "power-cap:sleep=5:queue=strict:order=work:levels=off"
    asked, found = registry.load(text), capped("300", text)[1]
    for name in ("name", "sleep_after_s", "settings", "rank", "score", "act"):
        assert getattr(found, name) == getattr(asked, name), name
    assert found.sleep_after_s == 5.0 and found.settings.queue == "strict" and found.rank is not None
    # No share that is not held.
    assert dict(found.params) == {}


def test_a_share_beside_a_cap_is_refused() -> None:
    told = typed("power-cap:sleep=5:share=0.5", 510, code=2)
    assert "--cap-w: does not go with share" in told and told.count("\n") == 1


def test_a_server_keeps_a_cap_by_power_cap() -> None:
    policy, cap = held_live("1500", "least-energy", "least-energy")
    assert policy == "power-cap" and cap.series.values == (1500.0,)
    assert held_live("0.1", "power-cap:order=start", "least-energy")[0] == "power-cap:order=start"
    for watts, policy, told in (
        ("1500", "wattflow", "held by the policy power-cap alone"),
        ("1500", "power-cap:watts=3", "does not go with watts"),
        ("nan", "power-cap", "out of range"),
        ("0", "power-cap", "out of range"),
        ("no-such-file.csv", "power-cap", "neither watts nor a file"),
    ):
        with pytest.raises(InvalidInput, match=told):
            held_live(watts, policy, "least-energy")


@pytest.mark.parametrize(
    ("rows", "begins_s"), [("0,300\n60,500\n", 7.0), ("1970-01-01T01:00:00Z,300\n1970-01-01T01:01:00Z,500\n", 3600.0)]
)
def test_a_servers_series_begins_with_it_or_at_its_dates(tmp_path: Path, rows: str, begins_s: float) -> None:
    file, told = tmp_path / "cap.csv", tmp_path / "cap.json"
    file.write_text(rows)
    write_live(held_live(str(file), "power-cap", "power-cap")[1], told, 7.0)
    series = CapSeries.read(told)
    assert (series.origin_s, series.at(begins_s), series.at(begins_s + 60.0)) == (begins_s, 300.0, 500.0)


def test_a_server_is_not_begun_with_a_bad_cap(tmp_path: Path) -> None:
    file = tmp_path / "cap.csv"
    file.write_text("0,300\n60,none\n")
    for cap, told in (
        (file, "line 2: 'none' is no cap in watts"),
        ("0", "out of range"),
        ("x.csv", "neither watts nor"),
    ):
        done = CliRunner().invoke(app, ["up", "--home", str(tmp_path / "home"), "--cap-w", str(cap)])
        assert done.exit_code == 2 and told in done.output and done.output.count("\n") == 1, done.output


@pytest.mark.parametrize("share", ["-1", "0", "11", "inf"])
def test_a_share_out_of_range_is_refused(share: str) -> None:
    with pytest.raises(InvalidInput, match=r"share = .* is out of range; it is 0\.01 to 10"):
        registry.load(f"power-cap:share={share}")


@pytest.mark.parametrize("settings", ["watts=0", "watts=500:share=0.5", "share=0.5:watts=500", "watts=0:share=0.5"])
def test_a_policy_has_one_cap(settings: str) -> None:
    with pytest.raises(InvalidInput, match="watts=W above 0, or share=S of all nodes' full watts: one of the two"):
        registry.load(f"power-cap:{settings}")


def test_the_policys_own_watts_are_told_as_the_options_are() -> None:
    told = [
        CliRunner().invoke(app, [*PLAIN, *words, "-o", "json"])
        for words in (("power-cap", "--cap-w", "500"), ("power-cap:watts=500",))
    ]
    assert [done.exit_code for done in told] == [0, 0] and "cap: above it" in told[1].stderr
    of_option, of_policy = (json.loads(done.stdout)["cap"] for done in told)
    assert of_option == of_policy and of_policy["watts"] == 500.0
    assert told[0].stderr == told[1].stderr


def test_results_tell_the_cap_and_how_it_was_kept(tmp_path: Path) -> None:
    file = tmp_path / "day.csv"
    file.write_text("time,watts\n0,300\n60,1400\n")
    out, page, attempts = tmp_path / "run.json", tmp_path / "run.html", tmp_path / "run.parquet"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    of_file = {"file": "day.csv", "sha256": digest, "step_s": 60.0, "steps": 2, "least_w": 300.0, "most_w": 1400.0}
    for cap, source in (("300", {"watts": 300.0}), (file, of_file)):
        told = typed(
            "power-cap", cap, "-q", "-o", "json", "--out", out, "--report", page, "--attempts", attempts, "--force"
        )
        assert told == ""
        found = json.loads(out.read_text())["cap"]
        assert 0 < found["time_above"] <= 1 and found["overshoot"] > 0
        assert found == {**source, "time_above": found["time_above"], "overshoot": found["overshoot"]}
        manifest = read_run(attempts).about["manifest"]
        assert manifest["cap"] == found and "share" not in manifest["params"]
        html = page.read_text(encoding="utf-8")
        assert "cap: above it" in html and "&quot;overshoot&quot;" in html
        shown = CliRunner().invoke(app, ["describe", str(attempts)]).output
        assert ("watts=300.0" if cap == "300" else "file=day.csv") in shown and "overshoot=" in shown


def test_a_cap_file_is_never_written_over(tmp_path: Path) -> None:
    file = tmp_path / "cap.json"
    file.write_text("0,2000\n")
    assert "is read by this command" in typed("power-cap", file, "--out", file, "--force", code=2)
    assert file.read_text() == "0,2000\n"


def test_times_are_seconds_or_dates(tmp_path: Path) -> None:
    for text in (
        "time,watts\n0,600\n60,520\n",
        "\ufeff0,600\n60,520\n",
        "my caps\n# of today\ntime,watts,why\n\n60,520,hot\n0,600,\n",
        "time,watts\n2026-01-01T00:00:00Z,600\n2026-01-01T01:01:00+01:00,520\n",
    ):
        assert series(tmp_path, text) == (60.0, (600.0, 520.0)), text


def test_a_row_holds_until_the_next_and_the_last_as_long_as_those_before(tmp_path: Path) -> None:
    assert series(tmp_path, "0,600\n60,520\n180,400\n") == (60.0, (600.0, 520.0, 520.0, 400.0, 400.0))
    assert series(tmp_path, "0,600\n")[1] == (600.0,)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *((f"time,watts\n0,600\n60,{bad}\n120,500\n", f"line 3: '{bad}' is no cap in watts; a cap is above 0 W")
          for bad in ("abc", "nan", "inf", "-5", "0", "1e308", "")),
        ("time,watts\n# note\nnoon,600\n", "line 3: 'noon' is no time; times are whole seconds"),
        ("noon,600\n60,500\n", "line 1: 'noon' is no time"),
        ("0,many\n60,500\n", "line 1: 'many' is no cap"),
        ("0,600\n60.5,500\n", "line 2: '60.5' is no time"),
        ("0,600\n-60,500\n", "line 2: '-60' is no time"),
        ("0,600\ninf,500\n", "line 2: 'inf' is no time"),
        ("0,600\n2026-01-01,500\n", "line 2: '2026-01-01' is another form of time"),
        ("2026-01-01T00:00:00.5,600\n", "line 1: '2026-01-01T00:00:00.5' has a part of a second"),
        ("60,600\n120,500\n", "line 1: the first time is 60 s; seconds count from 0"),
        ("0,600\n60,500\n60,400\n", "line 3: the time of line 2 again"),
        ("0,600\n60\n", "line 2: '60' is no time and watts"),
        ("0,600\n1,600\n90000000,5\n", "needs 179,999,999 steps of 1 s"),
        ("time,watts\n", "has no rows of a time and watts"),
        ("", "has no rows of a time and watts"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        series(tmp_path, text)
    assert str(refused.value).startswith(f"--cap-w {tmp_path / 'cap.csv'}: ") and told in str(refused.value)


def test_all_bad_rows_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "cap.csv"
    file.write_text("time,watts\n0,600\n60,abc\n120,nan\n")
    told = typed("power-cap", file, code=2)
    assert "cap.csv: 2 problems" in told and "line 3: 'abc'" in told and "line 4: 'nan'" in told


@pytest.mark.parametrize("cap", ["abc", "400W", "", "inf", "nan", "0", "-5", "1e308", "1e-300"])
def test_what_is_no_cap_is_told_with_what_is(cap: str) -> None:
    told = typed("power-cap", cap, code=2)
    assert f"--cap-w: {cap!r} is " in told and "a cap is above 0 W (0.001 to 1e+12 W), or a CSV file" in told


def test_the_largest_and_the_least_cap_are_reckoned_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "above it 0 % of the time" in typed("power-cap", "1e12")
        assert "above it 100 % of the time" in typed("power-cap", "0.001")


def test_a_cap_below_the_idle_floor_says_so() -> None:
    told = typed("power-cap", 520)
    assert told.count("the idle cluster alone draws 1,368 W") == 1
    assert "idle cluster" not in typed("power-cap", 1400)


def test_a_server_whose_cap_is_below_the_idle_floor_says_so() -> None:
    floor_w = 40.0  # of the node here, by the curve that its agent announces
    assert live_floor(floor_w, "agents", True, None) == ()
    assert live_floor(10.0, "agents", True, None) == (
        "cap: 10 W is too low with all nodes awake: the idle cluster alone draws 40 W",
    )
    (played,) = live_floor(10.0, "simulated", True, "equal")
    assert played in typed("power-cap", 10)
    # Whose nodes nobody knows yet.
    assert live_floor(1.0, "agents", False, None) == live_floor(1.0, "slurm", True, None) == ()

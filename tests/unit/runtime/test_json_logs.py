"""Logs as JSON: one object a line, with ids, whatever the text is."""

from __future__ import annotations

import json
import logging

from wattflow.runtime.logs import REQUEST, JsonFormatter, TextFormatter


def test_a_record_is_one_line_with_its_ids() -> None:
    record = logging.LogRecord("wattflow.x", logging.WARNING, "f", 1, "node %s\nis \udce9 lost", ("n1",), None)
    record.node, record.task = "n1", 7
    REQUEST.set("abcd")
    line = JsonFormatter().format(record)
    REQUEST.set("")
    assert "\n" not in line and line.isascii()
    told = json.loads(line)
    assert told["level"] == "warning" and told["node"] == "n1" and told["task"] == 7 and told["request"] == "abcd"
    assert told["message"].startswith("node n1\nis")


def test_a_traceback_stays_in_its_line() -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), (type(error), error, error.__traceback__))
    line = JsonFormatter().format(record)
    assert "ValueError: no" in json.loads(line)["traceback"] and "\n" not in line


def test_a_name_makes_no_line_and_no_colour_in_a_log_of_text() -> None:
    try:
        raise ValueError("\x1b[31mred")
    except ValueError as error:
        caught = (type(error), error, error.__traceback__)
    record = logging.LogRecord(
        "x", logging.INFO, "f", 1, "node %s is here", ("a\n2026 forged\x1b[2J\u2028\udcff",), caught
    )
    first, *trace = TextFormatter("%(message)s").format(record).splitlines()
    assert first == r"node a\n2026 forged\x1b[2J\u2028\udcff is here"
    assert trace[-1] == r"ValueError: \x1b[31mred"

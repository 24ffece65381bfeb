"""[faults] of a configuration: the run, its files and its page say who heard whom."""

from __future__ import annotations

import csv
import json
import tomllib
from html import unescape

import pytest
from typer.testing import CliRunner

from hearsay.cli import commands

TINY = ["--loss", "ridge", "--agents", "4", "--set", "problem.records=20"]
TINY += ["--set", "problem.dimension=2", "--steps", "6", "--seeds", "1", "--noise", "0.5"]
LOST = ["--set", "faults.links=[[0, 1, 0, 4]]"]


def call(*words, code=0):
    result = CliRunner().invoke(commands.app, [*map(str, words)])
    assert result.exit_code == code, result.output
    return result


def refused(*words) -> str:
    with pytest.raises(ValueError) as found:
        CliRunner().invoke(commands.app, [*map(str, words)], catch_exceptions=False)
    return str(found.value)


def test_a_run_shows_who_heard_whom_and_is_repeated_from_its_file(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    found = json.loads(call("run", "dsgd", *TINY, *LOST, "--out", first, "--json").stdout)
    with (first / "hearing.csv").open() as file:
        rows = {(int(r["hearer"]), int(r["sender"])): r for r in csv.DictReader(file)}
    assert (rows[0, 1]["sent"], rows[0, 1]["heard"]) == ("6", "2")
    assert {row["heard"] for link, row in rows.items() if link != (0, 1)} == {"6"}
    page = unescape((first / "private-report.html").read_text())
    share = (2 + 6 * (len(rows) - 1)) / (6 * len(rows))
    assert f"Of what was sent, {100 * share:.1f} % was heard" in page
    assert "Every message is charged, heard or not" in page
    assert "Share of a sender's messages that each hearer heard" in page
    kept = tomllib.loads((first / "config.toml").read_text())["faults"]
    assert kept == {"links": [[0, 1, 0, 4]]}
    again = json.loads(
        call("run", "--config", first / "config.toml", "--out", second, "--json").stdout
    )
    assert again["epsilon"] == found["epsilon"] and again["metrics"] == found["metrics"]


def test_settings_chosen_for_networks_that_deliver_are_not_measured_on_others(tmp_path):
    words = ["frontier", "breast-cancer", *LOST, "--out", tmp_path / "out"]
    assert "[faults] must be left out for hearsay frontier" in refused(*words)


def test_a_list_that_is_none_is_refused_as_it_was_typed(tmp_path):
    words = ["run", "dsgd", *TINY, "--set", "faults.links=[[0, 1", "--out", tmp_path / "out"]
    assert refused(*words).startswith("a list must be as in TOML, got '[[0, 1' (")

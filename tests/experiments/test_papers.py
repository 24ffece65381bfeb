"""benchmarks.papers: experiments one after the other within given minutes."""

from __future__ import annotations

import json
import sys

from benchmarks import papers


def call(monkeypatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["papers", *options])
    return papers.main()


def test_an_experiment_that_fails_is_said_and_the_next_one_begins(tmp_path, monkeypatch, capsys):
    asked = []

    def broken(folder, **options):
        raise ModuleNotFoundError("no accountant here")

    def working(folder, **options):
        asked.append((options["seeds"], options["first_seed"], options["only"]))

    found = {"p4-mnist": broken, "p3-mnist": working}
    monkeypatch.setattr(papers, "EXPERIMENTS", found)
    options = ["--minutes", "1", "--out", str(tmp_path), "--only", *found]
    options += ["--seeds", "2", "--first-seed", "1", "--runs", "x"]
    assert call(monkeypatch, *options) == 1
    assert asked == [(2, 1, ["x"])]
    assert "no accountant here" in capsys.readouterr().err
    left = {
        name: json.loads((tmp_path / name / "about.json").read_text())["left_out"] for name in found
    }
    assert left == {"p4-mnist": ["the report"], "p3-mnist": []}
    # What is done is not run again; what failed is.
    monkeypatch.setitem(found, "p4-mnist", working)
    assert call(monkeypatch, *options) == 0
    assert len(asked) == 2 and "p3-mnist: done before" in capsys.readouterr().out

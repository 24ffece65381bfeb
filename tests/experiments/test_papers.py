"""benchmarks.papers: experiments one after the other within given minutes."""

from __future__ import annotations

import json
import sys

import pytest

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
    assert asked == [(2, 1, {"x": None})]
    assert "no accountant here" in capsys.readouterr().err
    left = {
        name: json.loads((tmp_path / name / "about.json").read_text())["left_out"] for name in found
    }
    assert left == {"p4-mnist": ["the report"], "p3-mnist": []}
    # What is done is not run again; what failed is.
    monkeypatch.setitem(found, "p4-mnist", working)
    assert call(monkeypatch, *options) == 0
    assert len(asked) == 2 and "p3-mnist: done before" in capsys.readouterr().out


def test_after_results_only_what_they_lack_is_run(tmp_path, monkeypatch, capsys):
    """Seeds of runs that took less than two minutes each, with the command that makes just them."""
    home, asked = tmp_path / "results", []
    header = "run,test accuracy,step,time,seeds\n"
    for name, rows in {
        "p3-mnist": [
            "long,0.1,1,121 s,0",
            "quick,0.2,4*(k+1)^-0.2,119 s,0",
            "two,0.3,0.1,200 s,0 1",
            "all,0,0.1,9 s,0 1 2",
        ],
        "p4-mnist": ["all,0.5,0.1,9 s,0 1 2"],
    }.items():
        (home / name).mkdir(parents=True)
        (home / name / "ends.csv").write_text(header + "\n".join(rows) + "\n")

    def working(folder, **options):
        found = options["first_seed"], options["seeds"], options.get("only")
        asked.append((folder.parent.name, *found))

    names = ["p4-mnist", "p3-mnist", "p1-mnist"]
    monkeypatch.setattr(papers, "EXPERIMENTS", dict.fromkeys(names, working))
    out = tmp_path / "out"
    options = ["--out", str(out), "--only", *names, "--after", str(home)]
    assert call(monkeypatch, "--minutes", "0", *options) == 0
    said = capsys.readouterr().out
    assert "p3-mnist, seeds 1 to 2: quick (about 4.0 minutes" in said
    assert "p3-mnist, seeds 2 to 2: two (about 1.7 minutes" in said
    assert "p1-mnist, seeds 0 to 2: all (nobody knows how many" in said
    assert "long" not in said and "p4-mnist" not in said and not asked
    assert call(monkeypatch, "--minutes", "1", *options) == 0
    assert asked == [
        ("p3-mnist", 1, 2, {"quick": "4*(k+1)^-0.2"}),
        ("p3-mnist", 2, 1, {"two": "0.1"}),
        ("p1-mnist", 0, 3, None),
    ]
    about = json.loads((out / "p3-mnist" / "from-1" / "about.json").read_text())
    assert about["command"].endswith(
        "--only p3-mnist --seeds 2 --first-seed 1 --runs quick --found '4*(k+1)^-0.2'"
    )
    # The command makes just that, and the step of each run is named or none is.
    again = ["--minutes", "1", "--out", str(tmp_path / "again"), "--only", "p3-mnist"]
    assert call(monkeypatch, *again, "--runs", "quick", "--found", "4*(k+1)^-0.2") == 0
    assert asked[-1][1:] == (0, 3, {"quick": "4*(k+1)^-0.2"})
    with pytest.raises(SystemExit):
        call(monkeypatch, *again, "--runs", "quick", "two", "--found", "1")
    assert "--found names one step for each of --runs" in capsys.readouterr().err


def test_after_results_nobody_names_runs(tmp_path, monkeypatch, capsys):
    options = ["--minutes", "1", "--out", str(tmp_path), "--after", str(tmp_path), "--runs", "x"]
    with pytest.raises(SystemExit) as raised:
        call(monkeypatch, *options)
    assert raised.value.code == 2
    assert "--after says itself which runs and seeds" in capsys.readouterr().err

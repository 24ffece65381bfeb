"""What the pages about the papers say of the runs as printed is what the files in docs/results say.

docs/reproducing.md has a row for every figure and table, and docs/reproducing-p1.md to -p4.md one
for every run.
"""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks import papers, results

DOCS = Path(__file__).parents[2] / "docs"
NAMES = tuple(papers.ORDER)
# Of the papers' sections on experiments.
FIGURES = {
    "P1": ["Fig. 1 (a)", "Fig. 1 (b)", "Fig. 1 (c)", "Table I,", "Fig. 2", "Fig. 3", "Table II"],
    "P2": [
        *("Fig. 2 (a)", "Fig. 2 (c)", "Fig. 3 (a)", "Fig. 3 (c)", "3 (e)", "Fig. 4 (a)"),
        *("Fig. 4 (e)", "Fig. 5, MNIST", "Fig. 5, CIFAR", "Fig. 6 (a)", "Fig. 6 (b)", "Remark 22"),
    ],
    "P3": ["Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4", "Fig. 5"],
    "P4": ["Fig. 3", "Fig. 4"],
}
# Runs whose accuracies a row of docs/reproducing.md gives, in that order, to three digits.
PRINTED, TREE = "ldp-online, as printed", "MF (i), tree, as printed"
DENSE, TOEPLITZ = "MF (ii), dense, as printed", "MF (iii), toeplitz, as printed"
GIVEN = {
    "P1, Fig. 2, MNIST": ("p1-mnist", [PRINTED, "dsgd", "dola", "pdop"]),
    "P1, Fig. 3, CIFAR-10": ("p1-cifar", [PRINTED, "dsgd", "dola", "pdop"]),
    "P2, Fig. 2 (a), (b), MNIST": ("p2-mnist", [f"S1, p = {p}" for p in (-0.1, 0.1, 0.2)]),
    "P2, Fig. 2 (c), (d), CIFAR-10": ("p2-cifar", [f"S1, p = {p}" for p in (-0.1, 0.1, 0.2)]),
    "P2, Fig. 3 (a), (b), MNIST": (
        "p2-mnist",
        [f"S2, p = {p}" for p in (0.9994, 0.9996, 0.9998)],
    ),
    "P2, Fig. 3 (c), (d), CIFAR-10": (
        "p2-cifar",
        [f"S2, p = {p}" for p in (0.9994, 0.9996, 0.9998)],
    ),
    "P2, Fig. 5, MNIST": (
        "p2-mnist",
        [
            *("S2, p = 0.9996", "ldp-online", "weighted-erm", "output-perturbation"),
            *("gradient-perturbation", "quantized-dsgd, no noise"),
        ],
    ),
    "P2, Fig. 5, CIFAR-10": (
        "p2-cifar",
        ["S2, p = 0.9996", "ldp-online", "dola", "weighted-erm", "quantized-dsgd, no noise"],
    ),
    "P3, Fig. 5, MNIST": ("p3-mnist", ["output-perturbation, as printed", "dola [42]"]),
    "P4, Fig. 4, MNIST": (
        "p4-mnist",
        [
            f"τ = 5: {kind}"
            for kind in (DENSE, TOEPLITZ, TREE, "independent, as printed", "noiseless")
        ],
    ),
    "P4, Fig. 4, τ": (
        "p4-mnist",
        [f"τ = 10: {kind}" for kind in (DENSE, TOEPLITZ, TREE, "independent, as printed")],
    ),
}
VERDICTS = ("reproduced", "in part", "not reproduced", "cannot be", "not run")


def test_every_run_has_three_seeds_or_one():
    """And says so: a spread is over three, and no spread is one."""
    for name in NAMES:
        header, *runs = results.table(DOCS / "results" / name / "ends.csv")
        for row in runs:
            said = dict(zip(header, row, strict=True))
            spread = all("±" in said[column] for column in results.ACCURACIES)
            assert said["seeds"] == ("0 1 2" if spread else "0"), (name, row)


def in_files() -> set[tuple[str, ...]]:
    found = set()
    for name in NAMES:
        with (DOCS / "results" / name / "ends.csv").open() as file:
            found |= {(name, *row[:5]) for row in list(csv.reader(file))[1:]}
    return found


def rows(page: Path) -> list[tuple[str, ...]]:
    lines = page.read_text(encoding="utf-8").splitlines()
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]


def scores() -> dict[tuple[str, str], float]:
    return {(row[0], row[1]): float(row[4].split()[0]) for row in in_files()}


def curve(name: str, run: str) -> list[float]:
    """Test accuracies after the first steps."""
    found = results.table(DOCS / "results" / name / "curves.csv")
    return [float(row[2]) for row in found[1:] if row[0] == run and row[1] != "0"]


def test_every_run_has_its_row_and_every_row_its_run():
    pages = DOCS.glob("reproducing-p?.md")
    assert {row for page in pages for row in rows(page) if row[0] in NAMES} == in_files()


def test_every_figure_has_a_verdict():
    found = {row[0]: row for row in rows(DOCS / "reproducing.md") if re.match(r"P\d,", row[0])}
    for paper, figures in FIGURES.items():
        for figure in figures:
            mine = [row for name, row in found.items() if name[:2] == paper and figure in name]
            assert mine, (paper, figure)
            for _, said, ours, verdict, command in (row[:5] for row in mine if len(row) == 5):
                assert said and ours and verdict.startswith(VERDICTS) and command.startswith("`p")


@pytest.mark.parametrize("figure", GIVEN)
def test_the_numbers_of_a_verdict_are_those_of_the_runs(figure):
    (ours,) = [row[2] for row in rows(DOCS / "reproducing.md") if row[0] == figure]
    name, runs = GIVEN[figure]
    score = scores()
    assert re.findall(r"\b0\.\d{3}\b", ours) == [f"{score[name, run]:.3f}" for run in runs]


def test_table_2_is_that_of_its_runs_and_attacks():
    """On both pages: what three seeds and ten targets gave at four levels of noise."""
    levels = ("×0.5", "×1", "×1.5", "×2")
    header, *table = results.table(DOCS / "results" / "p1-table2" / "ends.csv")
    ends = {row[0]: dict(zip(header, row, strict=True)) for row in table}
    page = {row[0]: list(row[1:]) for row in rows(DOCS / "reproducing-p1.md")}
    for line, column, suffix in (
        ("test accuracy, printed coupling 0.01 (t+1)^-0.7", "test accuracy", ""),
        ("test accuracy, coupling (t+1)^-0.7", "test accuracy", ", coupling × 100"),
        ("training accuracy, coupling (t+1)^-0.7", "training accuracy", ", coupling × 100"),
    ):
        assert page[line] == [ends[level + suffix][column] for level in levels]
    attacked = results.table(DOCS / "results" / "p1-table2" / "attack-clip-none.csv")[1:]
    errors = [[float(row[6]) for row in attacked if row[0] == level[1:]] for level in levels]
    assert np.shape(errors) == (4, 10)
    spread = np.std(errors, axis=1, ddof=1) / math.sqrt(10)
    means = np.mean(errors, axis=1)
    said = [f"{mean:.3f} ± {off:.3f}" for mean, off in zip(means, spread, strict=True)]
    assert page["attacker's error"] == said
    (ours,) = [row[2] for row in rows(DOCS / "reproducing.md") if row[0] == "P1, Table II"]
    ends_of = [float(ends[level + ", coupling × 100"]["test accuracy"][:6]) for level in levels]
    printed = {f"{float(ends[level]['test accuracy'][:6]):.3f}" for level in levels}
    assert len(printed) == 1
    expected = [f"{ends_of[0]:.3f}", f"{ends_of[-1]:.3f}", *printed, said[0][:5], said[-1][:5]]
    assert re.findall(r"\b0\.\d{3}\b", ours) == expected


def numbers(text: str) -> list[str]:
    """As Python reads them: 1,063 and 3.2 × 10^121."""
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    text = re.sub(r" × 10\^(-?\d+)", r"e\1", text)
    return re.findall(r"(?<![\w.-])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])", text)


def reported(folder: Path) -> list[float]:
    """Every number in the tables of an experiment, and the means over seeds at the end of its
    runs.
    """
    found: list[float] = []
    for path in folder.glob("*.csv"):
        header, *table = results.table(path)
        if "seed" not in header:
            found += [float(n) for row in (header, *table) for cell in row for n in numbers(cell)]
        else:
            last = [[float(cell) for cell in row] for row in table if row[0] == table[-1][0]]
            found += np.mean(last, axis=0).tolist()
    return found


def rounds_to(value: float, said: str) -> bool:
    digits, _, power = said.partition("e")
    unit = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return abs(value - float(said)) <= 0.5001 * unit


CONVEX = ("p1-mushrooms", "p2-convex", "p3-estimation", "p4-logistic")


@pytest.mark.parametrize("name", CONVEX)
def test_the_numbers_of_convex_rows_are_in_the_tables_of_their_command(name):
    pool = reported(DOCS / "results" / name)
    mine = [row for row in rows(DOCS / "reproducing.md") if row[-1].strip("` ") == name]
    for figure, _, ours, *_ in mine:
        missing = [
            said
            for said in numbers(ours)
            if ("." in said or float(said) > 20) and not any(rounds_to(v, said) for v in pool)
        ]
        assert not missing, (figure, missing)
    assert (
        len(mine) == {"p1-mushrooms": 5, "p2-convex": 1, "p3-estimation": 6, "p4-logistic": 1}[name]
    )


def test_the_budgets_of_p2s_rows_are_those_of_its_tables():
    table = results.table(DOCS / "results" / "p2-mnist" / "figure-6.csv")[1:]
    certified = {row[0]: float(numbers(row[2])[0]) for row in table if row[2] != "infinite"}
    said = {
        row[0]: [float(n) for n in numbers(row[2])]
        for row in rows(DOCS / "reproducing.md")
        if row[0].startswith("P2, Fig")
    }
    s1, s2 = ([certified[name] for name in certified if name.startswith(s)] for s in ("S1", "S2"))
    others = [value for name, value in certified.items() if not name.startswith("S")]
    for figure, expected in {
        "P2, Figs. 2 (e), 3 (e)": s1 + s2,
        "P2, Fig. 4 (e)": [s1[1], s2[1]],
        "P2, Fig. 6 (a)": [s1[1], s2[1], min(others), max(others)],
    }.items():
        assert said[figure] == pytest.approx(expected, rel=0.05), figure


def test_what_puts_p1_ahead_of_s2_is_as_in_its_file():
    """docs/reproducing-p2.md: records do nothing, the noise on trackers (nearly) everything."""
    header, *table = results.table(DOCS / "results" / "figure-5.csv")
    reached = {row[0]: float(row[1].split()[0]) for row in table}
    page = rows(DOCS / "reproducing-p2.md")
    for line, names in {
        "55 records in every gradient": ["S2", "ldp-online, 55 records", "output-perturbation"],
        "all records so far": [
            *("S2, all records so far", "ldp-online"),
            "output-perturbation, all records so far",
        ],
        "55, weights 0.03 in the place of 0.1": [
            *("S2, weights 0.03", "ldp-online, 55 records, weights 0.03"),
        ],
        "55, weights 0.3": ["S2, weights 0.3", "ldp-online, 55 records, weights 0.3"],
        "55, no noise": ["S2, no noise", "ldp-online, 55 records, no noise"],
    }.items():
        (cells,) = [row[1:] for row in page if row[0] == line]
        assert [cell for cell in cells if cell] == [f"{reached[name]:.3f}" for name in names]
    text = (DOCS / "reproducing-p2.md").read_text(encoding="utf-8")
    for name in (
        "S2, no noise on states", "S2, no noise on trackers", "S2, beta / 10",
        "S2, agents' form (4), (6)", "output-perturbation, own noise out again",
    ):  # fmt: skip
        assert f"{reached[name]:.3f}" in text, name
    assert abs(reached["S2"] - reached["S2, records drawn anew"]) < 0.002
    assert header[-2] == "seeds" and {row[-2] for row in table} == {"3"}
    cnn = results.table(DOCS / "results" / "figure-5-cnn-p1.csv")[1:]
    of_cnn = {row[0]: f"{float(row[1]):.3f}" for row in cnn}
    for name in (
        "S2", "S2, no noise on states", "S2, no noise on trackers", "S2, agents' form (4), (6)",
        "ldp-online, 55 records",
    ):  # fmt: skip
        assert of_cnn[name] in text, name
    resnet = results.table(DOCS / "results" / "figure-5-resnet18.csv")[1:]
    of_resnet = {row[0]: float(row[1]) for row in resnet}
    for name, value in of_resnet.items():
        assert f"{value:.3f}" in text, name
    assert of_resnet["S2, no noise on trackers"] == max(of_resnet.values())
    assert {row[-2] for row in cnn + resnet} == {"1"}


def test_seeds_that_are_missing_are_said_with_their_minutes():
    """docs/reproducing.md: what `benchmarks.papers --after docs/results` would run."""
    found = [
        wanted for name in NAMES for wanted in papers.lacking(name, DOCS / "results" / name, 3)
    ]
    table = rows(DOCS / "reproducing.md")
    start = table.index(("left", "minutes")) + 2
    said = table[start : start + len(found)]
    assert [row[1] for row in said] == [f"{wanted.seconds / 60:.1f}" for wanted in found]
    assert all("two more seeds" in row[0] for row in said)


def test_results_say_where_they_come_from_and_what_is_missing():
    for name in NAMES:
        about = json.loads((DOCS / "results" / name / "about.json").read_text(encoding="utf-8"))
        for call in about["calls"]:
            assert name in call["command"] and call["device"] and call["minutes"] > 0
        assert isinstance(about["left_out"], list)
        assert (DOCS / "results" / name / "figure.png").stat().st_size > 1000
        assert (DOCS / "results" / name / "README.md").is_file()


def test_verdicts_rest_on_the_runs():
    """The orders that the table of figures claims."""
    score = scores()
    for data in ("p2-mnist", "p2-cifar"):
        s1 = [score[data, f"S1, p = {p}"] for p in (-0.1, 0.1, 0.2)]
        assert s1[0] > s1[1] + 0.02 and s1[1] > s1[2] + 0.01
        assert score[data, "S2, p = 0.9996"] > score[data, "S2, p = 0.9998"] + 0.02
        assert score[data, "S2, p = 0.9996"] > score[data, "S1, p = 0.1"] + 0.1
        for order in (
            [f"S2, p = {p}" for p in (0.9994, 0.9996, 0.9998)],
            [f"S1, p = {p}" for p in (-0.1, 0.1, 0.2)],
            ["ldp-online", "S2, p = 0.9996"],
        ):
            above = [curve(data, run) for run in order]
            assert np.all(np.diff(above, axis=0) < 0), (data, order)
    printed = {
        (data, run): reached
        for (data, run), reached in score.items()
        if data.startswith("p2") and not run.startswith(("S", "secrets"))
    }
    ahead = {key for key in printed if printed[key] > score[key[0], "S2, p = 0.9996"]}
    assert ahead == {
        (data, run)
        for data in ("p2-mnist", "p2-cifar")
        for run in ("ldp-online", "quantized-dsgd, no noise")
    }
    assert all(
        0.09 < reached < 0.12
        for key, reached in printed.items()
        if key[0] == "p2-cifar" and key not in ahead
    )
    for tau in (5, 10):
        alone = score["p4-mnist", f"τ = {tau}: independent, as printed"]
        assert score["p4-mnist", f"τ = {tau}: MF (iii), toeplitz, as printed"] > 2 * alone
        assert abs(score["p4-mnist", f"τ = {tau}: MF (i), tree, as printed"] - alone) < 0.1
    assert score["p3-mnist", "output-perturbation, as printed"] < 0.12
    assert 0.1 < score["p1-cifar", "ldp-online, as printed"] < 0.2


def test_what_the_library_reaches_is_ahead_of_what_is_printed():
    score = scores()
    for data, ours in {
        "p1-mnist": "secrets and secret batches at ε = 1",
        "p1-cifar": "secrets and secret batches at ε = 1",
        "p2-mnist": "secrets and secret batches at ε = 8",
        "p2-cifar": "secrets and secret batches at ε = 8",
        "p3-mnist": "secrets and secret batches at ε = 1",
        "p4-mnist": "secrets and secret batches at ε = 2",
    }.items():
        others = [
            reached
            for (name, run), reached in score.items()
            if name == data and run != ours and not run.startswith("secrets")
        ]
        assert score[data, ours] > max(others)


HEADER = "run,ε certified,test accuracy,worst agent,training accuracy,step,time,seeds\n"


def call(folder: Path, ends: str, curves: str = "", left: tuple[str, ...] = ()) -> Path:
    """What a call of benchmarks.papers leaves behind."""
    folder.mkdir()
    (folder / "ends.csv").write_text(HEADER + ends)
    (folder / "curves.csv").write_text("run,step,test accuracy\n" + curves)
    (folder / "about.json").write_text(json.dumps({"minutes": 1.5, "left_out": left}))
    return folder


def test_results_of_several_calls_are_joined(tmp_path):
    x, other, y = (
        f"{run},1,{reached},0,0,0.1,5 s,0\n"
        for run, reached in (("x", 0.5), ("x", 0.9), ("y", 0.7))
    )
    a = call(tmp_path / "a", x, "x,0,0.5\n", ("y", "z"))
    b = call(tmp_path / "b", other + y, "x,0,0.9\ny,0,0.7\n")
    home = tmp_path / "home"
    for folder in (a, b, b):
        results.take(home, folder)
    assert (home / "ends.csv").read_text() == HEADER + x + y
    about = json.loads((home / "about.json").read_text())
    assert (about["minutes"], about["left_out"], len(about["calls"])) == (3.0, ["z"], 2)
    results.take(home, b, instead=True)
    assert (home / "curves.csv").read_text() == "run,step,test accuracy\nx,0,0.9\ny,0,0.7\n"
    (b / "ends.csv").write_text("run,other\n")
    with pytest.raises(ValueError, match="tables must have one header"):
        results.take(home, b)


def told(values: np.ndarray) -> str:
    spread = f" ± {values.std(ddof=1):.4f}" if len(values) > 1 else ""
    return f"{values.mean():.4f}{spread}"


@pytest.mark.parametrize("split", [1, 2, 3])
def test_runs_with_different_seeds_are_put_together(tmp_path, split):
    """Mean and spread are those of all seeds at once, but for the digits that tables have."""
    reached = np.random.default_rng(0).uniform(0.2, 0.9, (4, 3))

    def ends(which: slice, seconds: int) -> str:
        seeds = " ".join(map(str, range(4)[which]))
        told_of = ",".join(told(values) for values in reached[which].T)
        return f"x,1,{told_of},0.1,{seconds} s,{seeds}\n"

    def curves(which: slice) -> str:
        return "".join(f"x,{k},{reached[which, k].mean():.5g}\n" for k in range(3))

    first, second, everything = slice(0, split), slice(split, 4), slice(0, 4)
    home = call(tmp_path / "home", ends(first, 5), curves(first))
    results.take(home, call(tmp_path / "more", ends(second, 7), curves(second)))
    (row,) = results.table(home / "ends.csv")[1:]
    assert (row[0], row[1], *row[5:]) == ("x", "1", "0.1", "12 s", "0 1 2 3")
    for cell, values in zip(row[2:5], reached.T, strict=True):
        found = [float(part) for part in cell.split(" ± ")]
        assert found == pytest.approx([values.mean(), values.std(ddof=1)], abs=2e-4)
    drawn = [float(line[2]) for line in results.table(home / "curves.csv")[1:]]
    assert drawn == pytest.approx(reached[everything].mean(0), abs=2e-5)


def test_runs_that_differ_in_more_than_seeds_are_not_put_together(tmp_path):
    home = call(tmp_path / "home", "x,1,0.5,0,0,0.1,5 s,0\n")
    other = call(tmp_path / "other", "x,1,0.5,0,0,0.4,5 s,1\n")
    with pytest.raises(ValueError, match="'x' must have one step, got 0.1 and 0.4"):
        results.take(home, other)
    assert "0.4" not in (home / "ends.csv").read_text()

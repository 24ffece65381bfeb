"""Runs at equal time and equal traffic: tables, figures and pages."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import hearsay as hs
from hearsay.report import comparison, numbers, plots
from hearsay.report import run as run_page
from hearsay.report.comparison import comparison_report
from hearsay.report.costs import along_seconds, cost_figures, cost_table, equal, main_metric
from hearsay.report.page import Table
from hearsay.report.plot_style import new_figure
from hearsay.simulation.costs import Costs

GRAPH = hs.graphs.ring(4)
PROBLEM = hs.problems.ridge(agents=4, records=80, dimension=2)
ALGORITHMS = {
    "plain": hs.gradient_perturbation(noise=0.1),
    "relayed": hs.gradient_perturbation(noise=0.1, averaging=3),
}
COSTS = Costs(latency=0.1, bandwidth=1e6, compute=0.1)


@pytest.fixture(scope="module")
def runs():
    """The same numbers at other prices."""
    plain = hs.simulate(ALGORITHMS["plain"], PROBLEM, GRAPH, steps=20, every=5, seeds=2)
    return {name: replace(plain, algorithm=one) for name, one in ALGORITHMS.items()}


@pytest.fixture(scope="module")
def timelines(runs):
    return {name: run.costs(COSTS) for name, run in runs.items()}


def test_runs_stand_where_they_were_last_measured_at_equal_time_and_traffic(runs, timelines):
    metric = main_metric(runs)
    assert metric == "released_error"
    # A plain round takes 0.2 seconds and one exchange, the other one 0.5 and four.
    time, sent = (equal(runs, timelines, metric, what) for what in ("seconds", "bytes"))
    assert time.limit == timelines["plain"].seconds[-1] == pytest.approx(4, rel=0.02)
    assert time.steps == {"plain": 20, "relayed": 5}
    assert sent.limit == timelines["plain"].bytes[-1]
    assert sent.steps == {"plain": 20, "relayed": 5}
    assert timelines["relayed"].bytes[-1] == 4 * sent.limit
    for name, step in time.steps.items():
        row = runs[name].metrics[metric][runs[name].steps.tolist().index(step)]
        assert time.values[name] == pytest.approx((row.mean(), row.std(ddof=1)))


def test_the_table_says_what_runs_take(runs, timelines):
    caption, header, rows = cost_table(runs, timelines)
    assert "at equal time and equal traffic" in caption and len(header) == len(rows[0]) == 7
    assert header[5] == "after 4 s" and header[6].startswith("after ")
    assert [row[1] for row in rows] == ["4 s", "10 s"]
    each = timelines["plain"].traffic.message * 2
    assert [row[3] for row in rows] == [numbers.size(each), numbers.size(4 * each)]
    assert rows[0][5].endswith("(step 20)") and rows[1][5].endswith("(step 5)")


def test_curves_are_drawn_against_seconds_and_bytes(runs, timelines):
    values = {name: line.seconds for name, line in timelines.items()}
    ax = plots.compare(runs, "accuracy" if "accuracy" in runs["plain"].metrics else "test_error",
                       new_figure()[1], along_seconds(timelines))  # fmt: skip
    assert ax.get_xlabel() == "simulated seconds"
    for line, name in zip(ax.lines, runs, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), values[name])
    drawn = cost_figures(runs, timelines)
    assert [figure.axes[0].get_xlabel() for _, figure in drawn] == [
        "simulated seconds", "traffic of all agents",
    ]  # fmt: skip


def test_pages_have_them(runs, timelines, tmp_path, monkeypatch):
    # Other tests draw the other figures.
    monkeypatch.setattr(comparison, "_curves", lambda runs: [])
    nothing = {"lead": "", "pictures": [], "table": Table("", (), [])}
    monkeypatch.setattr(run_page, "_learning", lambda run: nothing)
    page = comparison_report(runs, tmp_path, "Both", timelines=timelines).read_text()
    assert "against simulated seconds." in page and "against traffic of all agents." in page
    assert "a round of an agent sends" in page
    run, line = runs["plain"], timelines["plain"]
    page = run.report(tmp_path / "one", line).read_text()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
    assert f"Traffic {numbers.size(line.bytes[-1])} at most" in text
    assert "Simulated time 4 s" in text
    assert (tmp_path / "one" / "costs.csv").read_text() == line.to_csv()


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (84_235_788_000, "84.2 GB"),
     (1e21, "10⁶ PB")],
)  # fmt: skip
def test_bytes_as_people_write_them(count, said):
    assert numbers.size(count) == said

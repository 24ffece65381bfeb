"""What a run's page says first: what its model is worth."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

import hearsay as hs
from hearsay.report.comparison import _beside, comparison_report
from hearsay.report.run import run_report
from hearsay.report.worth import gains, in_words, ladder
from hearsay.simulation.result import Beside
from hearsay.simulation.worth import Worth, worth

GOOD = Worth(0.9, True, 0.6, 0.8, 0.95, (0.75, 0.85))
ERRORS = Worth(5.0, True, 10.0, 8.0, 4.0, explained=0.75, unit="in the unit of 'y'")


@pytest.fixture(scope="module")
def run():
    problem = hs.problems.logistic("breast-cancer", agents=3, head_start=200)
    found = hs.simulate(hs.dsgd(noise=0.01), problem, hs.graphs.ring(3), steps=20, seeds=2)
    return replace(found, beside=Beside(0.6, 0.99, 0.5, (0.4, 0.5, 0.6)))


def drawn(found: Worth):
    return ladder(found, Figure().add_subplot())


def text(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_every_number_has_its_place_and_its_words():
    ax = drawn(GOOD)
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        *("guessing", "alone", "together", "without noise"),
    ]
    marks = [tuple(line.get_data()) for line in ax.get_lines() if line.get_marker() == "o"]
    assert [(float(x[0]), int(y[0])) for x, y in marks] == [(0.6, 0), (0.8, 1), (0.9, 2), (0.95, 3)]
    (dots,) = [line for line in ax.get_lines() if line.get_marker() == "."]
    assert (list(dots.get_xdata()), list(dots.get_ydata())) == ([0.75, 0.85], [1, 1])
    assert [one.get_text() for one in ax.texts] == ["60.0 %", "80.0 %", "90.0 %", "95.0 %"]


def test_what_was_not_measured_has_no_row():
    ax = drawn(GOOD._replace(alone=None, clean=None, each=(), released=False))
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "guessing",
        "agents' own models",
    ]


def test_a_model_without_a_number_is_told_in_words():
    ax = drawn(ERRORS._replace(reached=math.inf))
    assert "infinite" in [one.get_text().strip() for one in ax.texts]
    ax.figure.canvas.draw()


def test_gains_and_losses_are_told_as_what_they_are():
    said = gains(GOOD)
    assert "Joining: 10.0 points of accuracy more than alone" in said
    assert "Noise: 5.0 points of accuracy less than without" in said
    assert "30.0 points of accuracy more than always naming the commonest label" in said
    assert "Joining: 20.0 points of accuracy less" in gains(GOOD._replace(reached=0.6))
    said = gains(ERRORS)
    assert "Joining: an error 37.5 % smaller" in said and "Noise: an error 25.0 % larger" in said
    assert "an error far larger" in gains(ERRORS._replace(guess=0.0))
    for reached in (math.inf, math.nan):
        assert gains(ERRORS._replace(reached=reached)).endswith("it diverged.")
    # Factors are compared by their logarithms: the square of what one has is twice as far off.
    factors = ERRORS._replace(reached=2.0, alone=4.0, guess=16.0, clean=None, log=True)
    assert "Joining: an error 50.0 % smaller, by its logarithm, than alone" in gains(factors)
    assert "In all an error 75.0 % smaller, by its logarithm," in gains(factors)
    assert in_words(ERRORS) == "4 without noise, 5 together, 8 alone, 10 always naming the mean"


def test_the_page_begins_with_it(run, tmp_path):
    page = run_report(run, tmp_path).read_text(encoding="utf-8")
    head, section = page.split("What it is worth", 1)
    assert gains(worth(run)) in text(section) and "<svg" in section
    assert "every agent by itself with the same epsilon" in section
    # Where accuracy is measured, the distance from the best model is no number to begin with.
    assert "Tracking error" not in head and "tracking error" in section
    assert "all there from the start" in section
    again = run_report(replace(run, beside=None), tmp_path / "none").read_text(encoding="utf-8")
    assert "What it is worth" not in again


def test_no_better_than_a_guess_is_said_aloud(run, tmp_path):
    shown = run_report(run, tmp_path / "one").read_text(encoding="utf-8")
    assert "No better than a guess" not in shown
    bad = {**run.raw, "released_accuracy": 0.4 + 0 * run.raw["released_accuracy"]}
    poor = replace(run, raw=bad)
    assert "No better than a guess" in run_report(poor, tmp_path / "two").read_text("utf-8")
    page = comparison_report({"good": run, "bad": poor}, tmp_path / "three", "Two").read_text()
    notice = page.partition("No better than a guess")[2].partition("</div>")[0]
    assert "bad: 99.0 % without noise, 40.0 % together, 50.0 % alone" in text(notice)
    assert "good" not in text(notice)
    table = page.partition("to be compared with</caption>")[2].partition("</table>")[0]
    assert "bad 40.0 %" in text(table) and "50.0 % 99.0 %" in text(table)


def test_numbers_of_one_kind_have_a_table_of_their_own():
    without = GOOD._replace(released=False)
    tables = _beside({"a": GOOD, "b": ERRORS, "c": GOOD, "d": without})
    assert [[row[0] for row in table.rows] for table in tables] == [["a", "c"], ["b"], ["d"]]
    assert tables[0].caption.startswith("Test accuracy of the models that may be released")
    assert tables[1].caption.startswith(
        "Root mean squared error, in the unit of 'y', of the models"
    )
    assert tables[2].caption.startswith("Test accuracy of the agents' own models")


def test_a_notebook_says_it_too(run):
    assert in_words(worth(run)) in text(run._repr_html_())

"""Paper P4's logistic regression with tiny arguments:
it runs, and the report has every part of the paper's experiment.
"""

from __future__ import annotations

import csv

import pytest

from hearsay.experiments import p4_logistic
from tests.factories import reproduced


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A fiftieth of the rounds, with two seeds: (folder, page, stages)."""
    folder = tmp_path_factory.mktemp("p4")
    return folder, *reproduced("p4-logistic", folder, scale=0.02)


def rows(folder, name):
    with open(folder / f"{name}.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_it_runs_to_the_end_and_says_what_was_chosen(tiny):
    _, page, stages = tiny
    assert stages == ["optima", "Fig. 3", "best steps", "bounds"]
    for text in (
        "Fig. 3",
        "2 B_g / tau",
        "Not printed and chosen here",
        "separable",
        "Lemma IV.9, step",
        "± ",
    ):
        assert text in page


@pytest.mark.slow
def test_every_method_meets_its_budget(tiny):
    folder, *_ = tiny
    found = rows(folder, "finals")
    assert len(found) == 2 * len(p4_logistic.methods(20))
    for row in found:
        if row["method"] == "noiseless":
            assert row["ε certified"] == "infinite"
        else:
            assert float(row["ε certified"]) <= float(row["budget"])
            assert float(row["ε by the paper's formula"]) > float(row["ε certified"])
    steps = {row["method"]: float(row["step"]) for row in found}
    assert steps["independent, smaller step"] == steps["independent"] / 4


@pytest.mark.slow
def test_the_bound_lies_above_the_measured_regret(tiny):
    folder, *_ = tiny
    for row in rows(folder, "bounds"):
        assert float(row["dynamic regret / Rτ"].split(" ")[0]) < float(row["bound"])


@pytest.mark.slow
def test_the_curves_are_there(tiny):
    folder, *_ = tiny
    for epsilon in ("0.5", "2"):
        found = rows(folder, f"curves-{epsilon}")
        assert {row["method"] for row in found} == set(p4_logistic.methods(20))
        assert all(
            0 <= float(row["accuracy"]) <= 1 and float(row["dynamic_regret"]) > 0 for row in found
        )


def test_settings_are_the_printed_ones():
    problem, graph = p4_logistic.problem_and_graph()
    assert problem.features.shape == (20, 5000, 100)
    assert graph.agents == 20
    for method in p4_logistic.methods(1000).values():
        assert (method.local_steps, method.horizon) == (5, 1000)
    # The step is the largest that Lemma IV.9 allows.
    assert pytest.approx(1 / (8 * problem.loss.curvature[1])) == p4_logistic.STEP * 5


def test_the_table_of_factorizations():
    """Golden, three digits (R = 1000, computed once apart from this code;
    dense is fitted for short ones only here).
    """
    _, header, found = p4_logistic.errors(1000, 64)
    assert header == ["R", "identity", "tree", "toeplitz", "blt", "dense"]
    assert [row[0] for row in found] == ["64", "128", "256", "512", "1,000"]
    assert [float(v) for v in found[-1][1:5]] == pytest.approx(
        [22.37, 7.03, 3.102, 3.103], rel=1e-3
    )
    assert float(found[0][5]) < min(float(v) for v in found[0][1:5])
    assert found[-1][5] == "-"

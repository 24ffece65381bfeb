"""Paper P3's example with tiny arguments:
it runs, and the report has every part of the paper's experiment.
"""

from __future__ import annotations

import numpy as np
import pytest

from hearsay.experiments import p3_estimation
from hearsay.experiments.runner import Experiment
from tests.factories import reproduced


@pytest.mark.slow
def test_a_hundredth_of_the_experiment(tmp_path):
    page, stages = reproduced("p3-estimation", tmp_path)
    assert stages == ["Figs. 1, 3, 4", "Fig. 2", "beyond", "equal budgets", "enforced"]
    for text in (
        "0.864",
        "0.488",
        "0.9923",
        "1.0080",
        "0.4874",
        "0.7556",
        "Theorem 4, noise",
        "Fig. 2",
        "agent 6",
    ):
        assert text in page
    assert (tmp_path / "gradient" / "private-metrics.csv").is_file()
    assert (tmp_path / "feedback.csv").read_text().startswith("form,")


def test_settings_are_the_printed_ones():
    problem, graph = p3_estimation.problem_and_graph()
    assert problem.optimum.tolist() == [0.5] * 6
    assert problem.start.tolist() == [3, 1, 1, 3, 3, 1]
    assert problem.change == 0.2
    factor = problem.stream.factor[2]
    printed = np.diag([2.0] * 6)
    for i, j in ((0, 1), (0, 3), (1, 3)):
        printed[i, j] = printed[j, i] = 1.0
    np.testing.assert_allclose(factor @ factor.T, printed, atol=1e-12)
    output, gradient = p3_estimation.forms().values()
    k = np.arange(4)
    np.testing.assert_allclose(output.step(k), 0.5 / (k + 1) ** 0.9)
    np.testing.assert_allclose(gradient.coupling(k), 0.5 / (k + 1) ** 0.5)
    assert gradient.sampling.size(k).tolist() == [1, 3, 4, 6]
    assert graph.agents == 6


@pytest.mark.slow
def test_feedback_and_average_at_the_same_epsilon():
    """The averaged read-out costs nothing and gains; feedback gains at the same noise and loses at
    the same budget (as the report says).
    """
    problem, graph = p3_estimation.problem_and_graph()
    experiment = Experiment(p3_estimation.SETTINGS, seeds=8)
    feedback, average = p3_estimation.beyond(experiment, problem, graph, 400)

    def error(table, row):
        return float(table[2][row][3].split(" ")[0])

    assert [row[1] for row in feedback[2][:2]] == [feedback[2][0][1]] * 2
    assert error(feedback, 1) > 100 * error(feedback, 0) > 100 * error(feedback, 2)
    assert average[2][0][1] == average[2][1][1]
    assert error(average, 1) < error(average, 0)
    assert error(average, 3) < error(average, 2)


@pytest.mark.parametrize("name", ["output", "gradient"])
def test_more_noise_and_larger_batches_cost_less(name):
    """Fig. 2: epsilon falls with eta and with gamma."""
    problem, graph = p3_estimation.problem_and_graph()
    experiment = Experiment(p3_estimation.SETTINGS)
    _, _, values = p3_estimation.figure_2(experiment, problem, graph, 3)[name]
    assert np.isfinite(values).all()
    assert np.all(np.diff(values, axis=0) < 0)
    assert np.all(np.diff(values, axis=1) < 0)


def test_numbers_by_declaration_are_marked_in_comparisons(tmp_path):
    from hearsay.report.comparison import comparison_report
    from hearsay.simulation.simulating import simulate

    problem, graph = p3_estimation.problem_and_graph()
    runs = {
        name: simulate(form, problem, graph, steps=1, reference=False)
        for name, form in p3_estimation.forms().items()
    }
    page = comparison_report(runs, tmp_path, "both forms").read_text(encoding="utf-8")
    assert page.count("by declaration, not a guarantee for records") == 1, (
        "the output form's, not the gradient form's"
    )

"""The paper's experiment with tiny arguments: it runs, says what it found,
and does not report on cut-off runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hearsay.experiments import p1_mushrooms, parts
from hearsay.problems.data import files
from tests.factories import reproduced

HERE = (
    Path(os.environ.get("HEARSAY_DATA", Path(__file__).parents[3] / "shared" / "data"))
).joinpath(files.FILES["mushrooms"].path)
needs_data = pytest.mark.skipif(not HERE.is_file(), reason="the mushrooms file is not here")


@pytest.mark.slow
@needs_data
def test_a_hundredth_of_the_experiment(tmp_path):
    page, stages = reproduced("p1-mushrooms", tmp_path)
    assert stages == ["Fig. 1", "Table I"]
    assert (tmp_path / "table-1.csv").is_file()
    for text in ("ldp-online", "dsgd", "dola", "pdop", "23.34", "4999", "Assumption 2", "-1.085"):
        assert text in page
    assert (tmp_path / "dsgd" / "private-metrics.csv").is_file()


@needs_data
def test_settings_are_the_printed_ones():
    problem, graph = p1_mushrooms.problem_and_graph(None)
    assert problem.dimension == 117
    assert problem.change == pytest.approx(2 * np.sqrt(22))
    assert [set(problem.labels[i, : problem.counts[i]]) for i in range(5)] == [{0.0}] * 3 + [
        {1.0}
    ] * 2
    assert graph.weights.data.tolist() == [0.3] * 10
    ours = p1_mushrooms.algorithms()["ldp-online"]
    assert [n.exponent for n in ours.noise] == pytest.approx([0.11, 0.12, 0.13, 0.14, 0.15])


def test_an_interrupted_run_ends_the_experiment():
    cut, whole = SimpleNamespace(interrupted=True), SimpleNamespace(interrupted=False)
    with pytest.raises(KeyboardInterrupt):
        parts.complete(cut)
    assert parts.complete(whole) is whole

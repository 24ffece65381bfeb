"""Experiments within a given time: what does not fit is left out, and what is there is kept."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hearsay as hs
from hearsay.experiments import parts
from hearsay.experiments.parts import FOLDER, OutOfTime, keeping, or_left, simulate
from hearsay.simulation.session import Expected

PROBLEM, GRAPH = hs.problems.ridge(agents=2, records=20), hs.graphs.ring(2)


def run(steps):
    return simulate(hs.dsgd(), PROBLEM, GRAPH, steps=steps, reference=False, regret=False)


def test_a_run_that_would_take_too_long_is_left_out_and_the_others_are_kept(tmp_path, monkeypatch):
    real, said = parts.library_simulate, []

    def timed(*args, notify, **options):
        notify(Expected("expected time", 1e6 if options["steps"] == 3 else 0.0))
        return real(*args, **options)

    monkeypatch.setattr(parts, "library_simulate", timed)
    made = {}
    for _ in range(2):
        with keeping(tmp_path, 1000, said.append) as kept:
            for steps in (2, 3, 4):
                with or_left(f"run {steps}"):
                    made[steps] = run(steps)
        assert kept.left == ["run 3"] and list(made) == [2, 4]
        # The whole is not finished, so that its parts stay for the next call.
        assert len(list((tmp_path / FOLDER).glob("*.npz"))) == 2
    assert kept.found == 2
    assert any("run 3 is left out: 1000000 s more would be needed" in line for line in said)


def test_nothing_begins_once_time_is_over(tmp_path):
    with keeping(tmp_path, 0.0), pytest.raises(OutOfTime, match="0 s are left"):
        run(2)
    assert not (tmp_path / FOLDER).exists()


def test_without_a_limit_everything_runs_and_the_parts_go(tmp_path):
    with keeping(tmp_path) as kept:
        found = run(2)
    assert kept.deadline == math.inf and not kept.left
    assert found.steps[-1] == 2 and not (tmp_path / FOLDER).exists()


def test_large_models_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MOST_MODELS", 8)
    with keeping(tmp_path):
        first = run(2)
        again = run(2)
    assert first.models.size and again.models.shape == (1, 2, 0)
    np.testing.assert_array_equal(again.raw["consensus_error"], first.raw["consensus_error"])

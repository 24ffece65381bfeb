"""How far a fit is: where it was asked for, not too often, and the end always."""

from __future__ import annotations

import numpy as np
import pytest

import hearsay as hs
from hearsay.estimators.verbose import Lines


def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    return X, (X[:, 0] > 0.5).astype(int)


def test_at_most_a_line_a_second_and_the_last_one_always(capsys):
    now = [0.0]
    lines = Lines(True, lambda: now[0])
    for done in range(31):
        lines.training(done, 30, 0.1 * done)
        now[0] += 0.125
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in said] == ["0", "8", "16", "24", "30"]
    assert said[-1] == "training: 30 of 30 rounds, epsilon 3.000 spent"
    lines = Lines(False)
    lines.rehearsing("rehearsing", 1, 1)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("verbose", [True, False])
def test_a_fit_says_both_parts_where_it_is_asked_to(verbose, capsys, tmp_path, monkeypatch):
    """What was rehearsed before is not rehearsed again: here nothing was."""
    monkeypatch.setenv("HEARSAY_CACHE", str(tmp_path))
    model = hs.NetworkClassifier(
        2.0, ranges=(0, 1), classes=[0, 1], agents=2, random_state=0, verbose=verbose
    )
    model.fit(*data())
    said = capsys.readouterr().err
    assert ("rehearsing on made-up records: 18 of 18" in said) == verbose
    rounds = model.rehearsal_.rounds
    assert (f"training: {rounds} of {rounds} rounds, epsilon 2.000 spent" in said) == verbose
    assert verbose or not said

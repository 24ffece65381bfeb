"""The search of benchmarks/number_search.py, for a few seconds;
and what it would say of code that keeps the numbers it was given.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import number_search
from hearsay import _validate as require
from hearsay.schedules import Schedule


def test_a_short_search_finds_nothing():
    """Four random configurations against their plain twins, one attack."""
    draw, outcomes = number_search.Draw(7), []
    cases = [number_search.drawn(draw) for _ in range(4)]
    for case in cases:
        outcome, details = number_search.judged(case)
        assert not outcome.startswith("FAULT"), (outcome, case, details)
        outcomes.append(outcome)
    assert outcomes.count("same as in plain numbers") >= 2
    more = (number_search.drawn(draw) for _ in range(400))
    quick = next(
        c for c in more if c["name"] == "dsgd" and number_search.judged(c)[0].startswith("same")
    )
    found, ratio = number_search.attacked(quick, 0)
    assert found == "attack within the certificate" and ratio > 0.1


@pytest.mark.slow
def test_it_finds_numbers_that_are_kept_as_given(monkeypatch):
    """As it was before: the fields of a dataclass are checked, and stay what they were."""

    def checked_only(record, **rules):
        for name, rule in rules.items():
            given = getattr(record, name)
            checked = rule(name, given)
            # A law of numbers is still read; a number stays of its own type.
            if isinstance(given, (str, tuple, list)) or isinstance(checked, Schedule):
                object.__setattr__(record, name, checked)

    draw = number_search.Draw(7)
    cases = [number_search.drawn(draw) for _ in range(40)]
    monkeypatch.setattr(require, "settle", checked_only)
    with np.errstate(all="ignore"):
        seen = {_outcome(case) for case in cases}
    assert any(outcome.startswith("FAULT") for outcome in seen)


def _outcome(case: dict) -> str:
    try:
        return number_search.judged(case)[0]
    except Exception as error:  # numbers that were not converted break in many ways
        return type(error).__name__

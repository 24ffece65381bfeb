"""The table of spared cases names tests that are there, and leaves the right number of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spared import CASES, left_to_the_slow


@pytest.mark.parametrize("name", CASES)
def test_a_spared_test_is_there_and_has_cases(name):
    path, function = name.split("::")
    text = (Path(__file__).parents[1] / path).read_text(encoding="utf-8")
    assert f"\ndef {function}(" in text and "parametrize" in text


def test_cases_are_spread_and_the_first_is_kept():
    name, most = next(iter(CASES.items()))
    cases = [f"case {n}" for n in range(4 * most)]
    left = left_to_the_slow({name: cases})
    assert len(left) == 3 * most and cases[0] not in left and cases[-1] not in left
    assert left_to_the_slow({name: cases[:most]}) == []

"""The tables of what is left to `make test-slow` name tests that are there, and leave the right
number of cases.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spared import CASES, ELSEWHERE, left_to_the_slow


def written(name: str) -> str:
    """The text of that test's file."""
    path, function = name.split("::")
    text = (Path(__file__).parents[1] / path).read_text(encoding="utf-8")
    assert f"\ndef {function}(" in text
    return text


@pytest.mark.parametrize("name", CASES)
def test_a_spared_test_is_there_and_has_cases(name):
    assert "parametrize" in written(name)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_has_its_idea_is_run_by_default(name):
    keeper = ELSEWHERE[name]
    assert written(name) and keeper not in ELSEWHERE and CASES.get(keeper, 1) > 0
    before = written(keeper).split(f"\ndef {keeper.split('::')[1]}(")[0]
    assert not before.endswith("@pytest.mark.slow")


def test_cases_are_spread_and_the_first_is_kept():
    name, most = next((name, most) for name, most in CASES.items() if most > 1)
    cases = [f"case {n}" for n in range(4 * most)]
    left = left_to_the_slow({name: cases})
    assert len(left) == 3 * most and cases[0] not in left and cases[-1] not in left
    assert left_to_the_slow({name: cases[:most]}) == []


def test_a_test_that_another_stands_for_is_left_whole():
    name = next(iter(ELSEWHERE))
    assert left_to_the_slow({name: ["a", "b"]}) == ["a", "b"]

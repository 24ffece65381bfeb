"""What notebooks show: balanced, escaped, without script, and with the numbers of the object."""

from __future__ import annotations

from dataclasses import replace
from html import unescape

import pytest

import hearsay as hs
from hearsay.privacy.certificate import show
from hearsay.tradeoff.points import Point
from hearsay.tradeoff.running import Frontier
from tests.report.test_html import Balanced

EVIL = '<script>alert(1)</script><a href="https://x">'
PROBLEM = hs.problems.ridge(agents=3, records=20, dimension=2)


@pytest.fixture(scope="module")
def run() -> hs.Run:
    return hs.simulate(hs.dsgd(noise=1.0), PROBLEM, hs.graphs.ring(3), steps=4, seeds=2)


def piece(value: object) -> str:
    """What a notebook is given, checked for what every piece must fulfil."""
    text = value._repr_html_()  # type: ignore[attr-defined]
    found = Balanced(text)
    assert not found.loads and "<script" not in text and "http" not in unescape(text)
    assert len(set(found.ids)) == len(found.ids) and len(text) < 200_000
    # Nothing but its own box is styled.
    style = text[text.index("*/", text.index("<style>")) + 2 : text.index("</style>")]
    rules = [rule.partition("{")[0] for rule in style.split("}") if rule.strip()]
    assert all(one.strip().startswith(".hearsay") for rule in rules for one in rule.split(","))
    return text


def test_a_certificate_shows_every_budget_and_what_it_rests_on(run):
    text = unescape(piece(run.certificate))
    assert "Privacy certificate: dsgd" in text and "4 messages, laplace noise" in text
    assert all(f">{show(b.epsilon)}</td>" in text for b in run.certificate.budgets)
    assert all(one.text in text for one, _ in run.certificate.shared_assumptions())
    assert "metrics, checkpoints and reports" in text
    warned = replace(run.certificate, warnings=("take care",))
    assert "Warning: take care" in piece(warned)
    assert "Warning" not in piece(replace(run.certificate, warnings=()))


def test_a_run_shows_its_numbers_with_the_certificate(run):
    text = unescape(piece(run))
    assert "dsgd on" in text and "2 seeds" in text and "counted on records" in text
    assert show(max(run.certificate.epsilon)) in text
    assert "Stopped early: no more" in piece(replace(run, stopped="no more"))


def test_what_is_given_is_text(run):
    cert = replace(run.certificate, algorithm=EVIL, warnings=(EVIL,), names=(EVIL, "b", "c"))
    for value in (cert, replace(run, certificate=cert, stopped=EVIL)):
        text = value._repr_html_()
        assert "<script" not in text and "&lt;script&gt;" in text


def frontier(**changes: object) -> Frontier:
    points = tuple(
        Point(key, key, 1.0, 1.0, "made up", [[accuracy]], [[accuracy]])
        for key, accuracy in (("alone", 0.61), ("secret-batches", 0.87))
    )
    whole = Frontier(points, "digits", "ring", 5, (20, 20), (1.0,), 1e-5, "zero-out")
    return replace(whole, **changes)  # type: ignore[arg-type]


def test_a_frontier_shows_its_picture_and_its_table():
    text = piece(frontier())
    assert "0.610 ± 0.000" in text and "0.870 ± 0.000" in text and text.count("<svg ") == 1
    assert "Not measured: alone at 2" in piece(frontier(missing=("alone at 2",)))
    # Two of them in one notebook.
    other = frontier(points=frontier().points[:1])
    assert not set(Balanced(text).ids) & set(Balanced(piece(other)).ids)

"""Paper P2's experiments on convex problems with tiny arguments:
they run, the report has every part of the paper's experiment, the budgets are the checked ones.
"""

from __future__ import annotations

import csv

import numpy as np
import pytest

from hearsay import graphs
from hearsay.certification import accounts
from hearsay.experiments import p2_convex, p2_schemes
from hearsay.experiments.runner import Experiment
from hearsay.problems.sampling.samplers import Cyclic, Subset
from tests.factories import reproduced

# C = 1, curvature off, K = 2000, so 2001 messages; agent 2 of the pair with weights 1: the paper's
# formula, every step, cyclic, T.
GOLDEN = {
    "S1, p = 0.1": (15_378, 948.7, 4.706, 226),
    "S1, p = 0.2": (7_830, 468.8, 2.353, 226),
    "S2, p = 0.9996": (30_701, 8179.2, 41.64, 218),
}


HERE = Experiment(p2_schemes.SETTINGS)


def number(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.slow
def test_a_hundredth_of_the_experiment(tmp_path):
    page, stages = reproduced("p2-convex", tmp_path)
    assert stages == ["Figs. 2-6", "Remark 22", "equal budgets", "two forms", "weights"]
    for text in (
        "15,378",
        "948.7",
        "4.706",
        "7,830",
        "468.8",
        "2.353",
        "30,701",
        "8,179.2",
        "41.64",
        "60,119",
    ):
        assert text in page
    for text in (
        "Lemma 2",
        "telescope",
        "L Phi",
        "two algorithms",
        "Remark 22",
        "gradient tracking loses",
        "ring",
        "Fig. 6(b)",
    ):
        assert text in page
    assert (tmp_path / "digits" / "S2, p = 0.9996" / "private-metrics.csv").is_file()
    with (tmp_path / "ends.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert len(rows) == 16
    assert (
        dict(zip((r[0] for r in rows), (r[2] for r in rows), strict=True))[
            "quantized-dsgd, no noise"
        ]
        == "infinite"
    )


def test_settings_are_the_printed_ones():
    found = p2_schemes.schemes(2000)
    for name, scheme in found.items():
        printed = (0.04, 0.005, 0.05) if name.startswith("S1") else (0.1, 0.01, 0.1)
        laws = (scheme.coupling, scheme.tracking, scheme.step)
        assert tuple(round(float(law(0)), 3) for law in laws) == printed
        assert p2_schemes.size(scheme) == (53 if name.startswith("S1") else 55)
        assert scheme.noise == scheme.tracker_noise
        assert isinstance(scheme.sampling, Cyclic)
    k = np.arange(4)
    np.testing.assert_allclose(found["S1, p = -0.1"].noise(k), (k + 1.0) ** -0.1)
    np.testing.assert_allclose(found["S2, p = 0.9998"].noise(k), np.full(4, 0.9998**2000))
    assert list(found) == [
        "S1, p = -0.1",
        "S1, p = 0.1",
        "S1, p = 0.2",
        "S2, p = 0.9994",
        "S2, p = 0.9996",
        "S2, p = 0.9998",
    ]
    pair, ring = p2_schemes.networks()
    assert not pair.symmetric
    assert ring.symmetric
    digits, linear = p2_convex.problems().values()
    assert digits.counts.min() >= 55
    assert linear.counts.tolist() == [12_000] * 5
    assert not digits.declared
    assert not linear.declared
    for name, other in p2_schemes.others(found[p2_schemes.S2]).items():
        other.check(ring, digits)
        if name not in ("ternary-dsgd", "quantized-dsgd, no noise"):
            assert float(other.noise_for(0)(7)) == 0.9996**2000
        assert float(other.step_size(0)) == 0.1


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_budgets(name):
    table = p2_schemes.budgets(p2_schemes.declared(), graphs.five_agents(), "")
    row = {r[0]: r[1:] for r in table[2]}[name]
    assert [number(text) for text in row] == pytest.approx(GOLDEN[name], rel=6e-5)


def test_certificates_that_rest_on_nothing_declared():
    """On both problems cyclic batches cost about T times less than a record in every batch,
    and Lemma 2 costs most.
    """
    pair, _ = p2_schemes.networks()
    for problem in p2_convex.problems().values():
        for row in p2_schemes.budgets(problem, pair, "")[2]:
            paper, every, cyclic, period = map(number, row[1:])
            assert paper > every > cyclic
            assert every / cyclic == pytest.approx(period, rel=0.12)
        for scheme in p2_schemes.as_printed(Subset).values():
            kinds = {
                a.kind
                for account in accounts(scheme, problem, pair, 2)
                for a in account.assumptions
            }
            assert "declared" not in kinds


def test_peaks_of_the_planned_budget():
    """Remark 22 reads its peaks off the order of growth; whole sample sizes move them,
    by the paper's own formula too.
    """
    (_, _, rows), curves = p2_schemes.remark_22(HERE, 5)
    assert [row[1] for row in rows] == ["88", "626"]
    assert [curves[k]["the paper's formula"].peak for k in ("S1", "S2")] == [215, 693]
    assert [curves[k]["certified, every step"].peak for k in ("S1", "S2")] == [215, 1243]
    assert [curves[k]["certified, cyclic"].peak for k in ("S1", "S2")] == [50, 4000]


@pytest.mark.slow
def test_the_agents_update_stops_short():
    _, _, rows = p2_convex.two_forms(HERE, 2000)
    for row in rows:
        compact, half, end = float(row[2]), float(row[3]), float(row[4])
        assert compact < 1e-4
        assert end > 1e-3
        assert end == pytest.approx(half, rel=0.05), "it has stopped, not slowed down"

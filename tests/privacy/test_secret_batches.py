"""Secret batches from the problem to the certificate: who is amplified, and what is said where
nobody is.
"""

import math
import time
from dataclasses import replace

import pytest

import hearsay as hs
from hearsay.certification import amplified, calibrate, certify, messages_within
from hearsay.privacy.verification import verify, verify_text

DELTA = 1e-5
PROBLEM = hs.problems.logistic("breast-cancer", agents=3, clip=0.5, adjacency="zero-out")
TASK, GRAPH = PROBLEM.task, hs.graphs.complete(3)
PLAIN = {"step": 0.5, "noise": 0.3, "mechanism": "gaussian"}
AMPLIFIED = {
    "gradient-perturbation",
    "weighted-erm",
    "sdm-dsgd",
    "adp2sgd",
    "pdop",
    "asynchronous-gossip",
}


def test_who_is_amplified():
    for name, build in hs.REGISTRY.items():
        if name in ("correlated-federated", "federated-independent", "federated-noiseless"):
            continue
        options = {"sampling": hs.Poisson(0.1)}
        if "gaussian" in build().mechanisms:
            options["mechanism"] = "gaussian"
        found = amplified(build(**options), TASK, GRAPH, 0)
        assert bool(found) == (name in AMPLIFIED), name


def test_noise_is_read_off_the_certificate():
    """Calibrate, then read: z = noise x rate N / clip."""
    held = float(TASK.counts[0])
    algorithm = hs.gradient_perturbation(**PLAIN, sampling=hs.Poisson(0.05))
    found = calibrate(algorithm, TASK, GRAPH, 400, 1.0, delta=DELTA)
    assert float(found.noise_for(0)(0)) * 0.05 * held / 0.5 == pytest.approx(3.8745, rel=1e-4)
    certificate = certify(found, TASK, GRAPH, 400, delta=DELTA)
    assert max(certificate.epsilon) <= 1.0
    assert not certificate.warnings
    assert "draws from its seeds" in str(certificate).replace("\n            ", " ")
    _, verdict = verify_text(certificate.to_json())
    assert verdict.holds and verdict.numbers == 3


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_noise_that_was_far_too_loud_is_brought_down(mechanism):
    """At delta it costs nothing at all, which is no reason to leave it."""
    quiet, loud = (
        hs.gradient_perturbation(
            step=0.5, noise=noise, mechanism=mechanism, sampling=hs.Poisson(0.05)
        )
        for noise in (0.3, 1e6)
    )
    spent = certify(loud, TASK, GRAPH, 9, delta=DELTA)
    first = spent.budgets[0]
    assert (first.epsilon if mechanism == "gaussian" else first.epsilon_at_delta) == 0.0
    found, expected = (
        float(calibrate(one, TASK, GRAPH, 9, 1.0, delta=DELTA).noise_for(0)(0))
        for one in (loud, quiet)
    )
    assert found == pytest.approx(expected, rel=1e-6)
    # Nothing is sent.
    assert calibrate(loud, TASK, GRAPH, 0, 1.0, delta=DELTA).noise_for(0)(0) == 1e6


def test_a_thousand_rounds_are_certified_at_once():
    algorithm = hs.gradient_perturbation(**PLAIN, sampling=hs.Poisson(0.0217))
    began = time.process_time()
    certify(algorithm, TASK, GRAPH, 1000, delta=3.21e-6)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("algorithm", "why"),
    [
        (hs.dsgd(mechanism="gaussian", sampling=hs.Poisson(0.1)), "private point"),
        (hs.ternary_dsgd(sampling=hs.Subset(10)), "ternary messages have no proof"),
        (
            hs.gradient_perturbation(
                **PLAIN, sampling=hs.Poisson(0.1), correlation="toeplitz", horizon=20
            ),
            "take back",
        ),
        (hs.gradient_perturbation(**PLAIN, sampling=hs.Poisson(0.1, cap=11)), "no slot"),
    ],
)
def test_what_is_not_amplified_says_why(algorithm, why):
    found = certify(algorithm, TASK, GRAPH, 20, delta=DELTA)
    said = [w for w in found.warnings if "charged as if a record were in every one" in w]
    assert len(said) == 1 and why in said[0]
    amplifying = hs.gradient_perturbation(**PLAIN, sampling=hs.Poisson(0.1))
    assert not certify(amplifying, TASK, GRAPH, 20, delta=DELTA).warnings


def test_an_algorithm_that_claims_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(type(hs.dsgd()), "amplifies", True)
    with pytest.raises(ValueError, match="amplifies of dsgd must be False"):
        amplified(hs.dsgd(sampling=hs.Poisson(0.1)), TASK, GRAPH, 0)


def test_a_budget_stops_at_the_last_message_that_it_pays_for():
    algorithm = hs.gradient_perturbation(**PLAIN, sampling=hs.Poisson(0.1))
    messages, _ = messages_within(algorithm, TASK, GRAPH, 400, 0.3, DELTA)
    assert 0 < messages < 400
    assert max(certify(algorithm, TASK, GRAPH, messages, delta=DELTA).epsilon) <= 0.3
    assert max(certify(algorithm, TASK, GRAPH, messages + 20, delta=DELTA).epsilon) > 0.3


def test_replaced_records_cost_more_and_never_more_than_in_full():
    algorithm = hs.gradient_perturbation(**PLAIN, sampling=hs.Poisson(0.1))
    emptied = certify(algorithm, TASK, GRAPH, 50, delta=DELTA).epsilon[0]
    replaced = certify(algorithm, TASK.under("replace"), GRAPH, 50, delta=DELTA).epsilon[0]
    full = hs.gradient_perturbation(
        **PLAIN,
        sampling=hs.Subset(
            19,
        ),
    )
    assert emptied < replaced
    assert math.isfinite(replaced)
    assert certify(full, TASK, GRAPH, 50, delta=DELTA).finite


def test_files_written_before_under_replace_hold_and_smaller_numbers_do_not():
    """A file that was charged for a record that is emptied, then filled, claims more than it costs:
    4.879 of 6.388.
    """
    algorithm = hs.gradient_perturbation(**PLAIN, sampling=hs.Poisson(0.1))
    found = certify(algorithm, TASK.under("replace"), GRAPH, 50, delta=DELTA)

    def claiming(factor):
        kinds = [replace(b, epsilon=b.epsilon * factor) for b in found.budgets]
        return verify(replace(found, budgets=tuple(kinds)))

    assert verify(found).holds
    before = claiming(6.388 / 4.879)
    assert before.holds and any("claimed above its cost" in note for note in before.notes)
    assert not claiming(0.999).holds

"""Replace and zero-out: what certificates say of them, how they compare over everything there is,
and the counterexamples to the obvious mistakes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import hearsay as hs
from hearsay.algorithms import REGISTRY
from hearsay.audit.brute_force import Transcript, allowed, gaps
from hearsay.audit.messages import bare
from hearsay.certification import accounts
from hearsay.cli.commands import app
from hearsay.mechanisms import MECHANISMS, convert
from hearsay.privacy.adjacency import Adjacency, implied
from hearsay.privacy.certificate import Certificate
from hearsay.privacy.verification import verify_text
from hearsay.problems import Ball
from hearsay.problems.losses.domains import namespace
from hearsay.problems.losses.linear import LinearLoss, Logistic, Squared
from hearsay.problems.sampling.samplers import SAMPLERS, Records, Sized
from hearsay.report.certificate import certificate_section
from tests.factories import holding, uniform

AGENTS, HELD, STEPS, DELTA = 3, 12, 6, 1e-5
GRAPH = hs.graphs.ring(AGENTS, weight=0.3)
IMPLIED = "(2 epsilon, (1 + e^epsilon) delta)"


def problem_of(loss=Squared(1.0, 0.1, label_bound=1.0, clip=1.0), **options):
    return holding(loss, *uniform(AGENTS, HELD), **options)


NEURAL = hs.problems.from_function(
    lambda params, record: (record[0] @ params - record[1]) ** 2, jnp.zeros(1)
)
PROBLEMS = {
    "clipped": problem_of(),
    "not clipped": problem_of(Squared(1.0, 0.1, label_bound=1.0)),
    "logistic": problem_of(Logistic(2.0, 0.05, clip=10.0)),
    "neural": problem_of(hs.problems.NeuralLoss(NEURAL[0], clip=1.0)),
    "a loose network": problem_of(hs.problems.NeuralLoss(NEURAL[0])),
}


# What a certificate says.


@pytest.fixture(scope="module")
def both() -> list[Certificate]:
    return [
        hs.certify(hs.ldp_online(noise=5.0), PROBLEMS["clipped"], GRAPH, STEPS, adjacency=one)
        for one in ("replace", "zero-out")
    ]


def test_text_page_and_json_say_which_one_holds(both):
    plain, emptied = both
    words = " ".join(str(emptied).split())
    assert "empty record, whose gradient is 0" in words
    assert "how many records an agent holds stays public" in words
    assert IMPLIED in words
    assert IMPLIED not in str(plain) and "replaced by any other admissible record" in str(plain)
    scope = dict(certificate_section(emptied)["scope"])
    assert IMPLIED in scope["Protects"]
    assert "being there or empty" in certificate_section(emptied)["meaning"]
    stored = json.loads(emptied.to_json())["descriptions"]
    assert [one["adjacency"] for one in stored] == [{"relation": "zero-out"}] * len(stored)
    assert (plain.adjacency, emptied.adjacency) == ("replace", "zero-out")
    assert all(b.paper_epsilon is None for b in emptied.budgets), "papers replace records"


def test_verify_takes_both_and_no_other(both, tmp_path):
    for certificate in both:
        text = certificate.to_json()
        assert Certificate.from_json(text) == certificate
        assert verify_text(text)[1].holds
        path = tmp_path / f"{certificate.adjacency}.json"
        path.write_text(text, encoding="utf-8")
    shown = CliRunner().invoke(app, ["verify", *map(str, sorted(tmp_path.iterdir()))])
    assert shown.exit_code == 0 and shown.output.count("zero-out adjacency") == 1
    # A number under zero-out that is passed off as one under replace.
    forged = both[1].to_json().replace('"relation": "zero-out"', '"relation": "replace"')
    assert not verify_text(forged)[1].holds
    with pytest.raises(ValueError, match="relation must be one of replace, zero-out, got 'add'"):
        Adjacency("add")


def test_what_the_words_rest_on_names_the_right_bound():
    public = hs.gradient_perturbation(noise=1.0)
    texts = {
        (name, kind): "; ".join(
            a.text
            for a in hs.certify(made, PROBLEMS[name], GRAPH, STEPS, adjacency=kind)
            .budgets[0].assumptions
        )
        for name, made in (("clipped", public), ("neural", public), ("not clipped", public))
        for kind in ("replace", "zero-out")
    }  # fmt: skip
    assert "so one record changes it by at most 2" in texts["clipped", "replace"]
    assert "so emptying one record changes it by at most 1" in texts["clipped", "zero-out"]
    assert "so emptying one record changes it by at most 1" in texts["neural", "zero-out"]
    # 2 Ba (Ba R + Bb) = 2 (50 + 1).
    assert "C = 102 (its gradient's own length, over the ball" in texts["not clipped", "zero-out"]
    states = hs.certify(
        hs.ldp_online(noise=1.0), PROBLEMS["neural"], GRAPH, STEPS, adjacency="zero-out"
    )
    said = " ".join(a.text for a in states.budgets[0].assumptions)
    assert "changes by at most 2 once the states differ, the emptied one or not" in said


# Over everything there is.


def samplers():
    for name, kind in SAMPLERS.items():
        if name == "poisson":
            yield name, kind(0.5)
            continue
        yield name, kind(2) if issubclass(kind, Sized) else kind()
        if issubclass(kind, Sized):
            yield f"{name}, growing", kind("(k+1)^0.7")


def settings_of(name):
    """Every sampler and mechanism that the algorithm takes, each problem that it runs on."""
    build = REGISTRY[name]
    base = build(**({"horizon": STEPS} if "federated" in name else {}))
    for law in base.mechanisms:
        for words, sampling in samplers():
            for title, problem in PROBLEMS.items():
                try:
                    made = replace(base, mechanism=law, sampling=sampling)
                    made.check(GRAPH, problem.task)
                    accounts(made, problem, GRAPH, 0)
                except ValueError:
                    continue
                yield f"{law}, {words}, {title}", made, problem


@pytest.mark.parametrize("name", REGISTRY)
def test_zero_out_costs_no_more_than_replace_and_is_finite_with_it(name):
    """For all algorithms, samplers and mechanisms, in the law's own number (epsilon, rho, delta);
    without curvature it is the same number.
    """
    seen = 0
    for words, algorithm, problem in settings_of(name):
        (cost, basis), (less, other) = (
            min(
                (account.cost(STEPS, DELTA).value, account.basis)
                for account in accounts(algorithm, problem.under(kind), GRAPH, 0)
            )
            for kind in ("replace", "zero-out")
        )
        seen += 1
        assert math.isfinite(cost) == math.isfinite(less), words
        assert less <= cost, words
        if basis == other == "clip bound 1":
            assert less == cost, "2 B per later step, whichever record was changed"
        elif math.isfinite(cost):
            assert less < cost, words
    assert seen


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("sampling", [hs.Poisson(0.25), hs.Subset(3)], ids=str)
def test_secret_batches_cost_no_more_under_zero_out(law, sampling):
    algorithm = hs.gradient_perturbation(noise=2.0, mechanism=law, sampling=sampling)
    one, other = (
        hs.certify(algorithm, PROBLEMS["clipped"], GRAPH, STEPS, delta=DELTA, adjacency=kind)
        for kind in ("replace", "zero-out")
    )
    assert other.finite and other.epsilon[0] <= one.epsilon[0]
    assert other.descriptions[0].account.amplified


def test_the_account_takes_the_tasks_own_bound_and_2b_without_curvature():
    made = hs.ldp_online(noise=1.0)
    found = {
        kind: {a.basis.split()[0]: float(a.recursion.exposure(0)) for a in
               accounts(made, PROBLEMS["clipped"].under(kind), GRAPH, 0)}
        for kind in ("replace", "zero-out")
    }  # fmt: skip
    assert found["replace"] == {"curvature": 2.0, "clip": 2.0}
    assert found["zero-out"] == {"curvature": 1.0, "clip": 2.0}


# Counterexamples.


@dataclass(frozen=True)
class Crest(LinearLoss):
    """-log cosh(20 m) / 20 + b m: a sharp crest at 0 whose sides go down for ever at slope 1."""

    def residual(self, margin, labels):
        return labels - namespace(margin).tanh(20 * margin)

    def values(self, margin, labels):
        return labels * margin - namespace(margin).logaddexp(20 * margin, -20 * margin) / 20

    @property
    def curvature(self):
        return -20 * self.feature_bound**2, 0.0

    def unclipped_change(self, reach):
        return 4 * self.feature_bound


def test_without_curvature_an_emptied_record_moves_all_the_others_by_twice_the_clip():
    """It pushes one of the two states over the crest, and the nine others drive them apart: a gap
    of 5.2 after 30 steps of 0.1, where B per step would certify 3 and 2 B per step certifies 6.
    """
    records, clip, step, steps = 10, 1.0, 0.1, 30
    features = np.ones((2, records, 1))
    problem = holding(
        Crest(1.0, 0.0, 1.0, clip), features, 0 * features[..., 0], Ball(100.0),
        start=np.array([-0.002]), adjacency="zero-out",
    )  # fmt: skip
    graph = hs.graphs.complete(2, weight=0.5)
    algorithm = bare(
        hs.ldp_online(step=step, coupling=1e-9, noise=1.0, sampling=hs.Subset(records))
    )
    there = Records(
        jnp.ones((records, 1)), jnp.zeros(records).at[0].set(-1.0), jnp.asarray(records)
    )
    empty = there._replace(features=there.features.at[0].set(0.0))
    silence = (jnp.zeros((1, steps + 1, 1)),)
    l2, _ = gaps(algorithm, problem, graph, 0, there, empty, Transcript(silence, silence))
    certified = allowed(algorithm, problem, graph, 0, steps + 1)
    found, limit = float(l2[0, 0, -1]), float(certified[0, -1])
    assert found > 5.0 > 3.0 == pytest.approx(step * steps * clip), "B per step is refuted"
    assert np.all(l2[0, 0] <= certified[0] * (1 + 1e-9))
    assert limit == pytest.approx(2 * step * steps * clip, rel=1e-6)


@dataclass(frozen=True)
class Side(Crest):
    """The same crest, where the label says at which step it stands."""

    def residual(self, margin, labels):
        return -namespace(margin).tanh(1e4 * (margin - labels))


def test_local_steps_without_curvature_keep_2b_after_the_emptied_one():
    """P4: the first local step moves by B or not at all, every later one drives the two models
    apart by 2 B: B (2 tau - 1) / tau, not B.
    """
    tau, clip, rate = 5, 1.0, 0.1
    zeros = np.zeros((2, 10, 1))
    problem = holding(Side(1.0, 0.0, 10.0, clip), zeros, zeros[..., 0], Ball(100.0))
    algorithm = hs.correlated_federated(step=rate, horizon=2, sampling=hs.Fresh(tau))
    found = {
        kind: min(s for s, _, _ in algorithm.sensitivities(problem.under(kind)))
        for kind in ("replace", "zero-out")
    }
    assert found["replace"] == pytest.approx(2 * clip)
    assert found["zero-out"] == pytest.approx(clip * (2 * tau - 1) / tau)

    def learnt(first: float) -> float:
        """Where tau local steps lead, over tau eta; the crests stand between the two models."""
        z = 0.0 - rate * first
        for _ in range(tau - 1):
            z -= rate * float(np.clip(problem.loss.residual(np.asarray(z), 0.05), -clip, clip))
        return (0.0 - z) / (rate * tau)

    gap = abs(learnt(-clip) - learnt(0.0))
    assert gap == pytest.approx(clip * (2 * tau - 1) / tau, rel=1e-6) and gap > clip


def test_local_steps_with_curvature_move_by_the_longest_gradient():
    tau, rate = 4, 0.1
    problem = holding(Logistic(1.0, 0.0, clip=9.0), *uniform(2, 8), Ball(5.0))
    algorithm = hs.correlated_federated(step=rate, horizon=2, sampling=hs.Fresh(tau))
    moved, emptied = (
        algorithm.sensitivities(problem.under(kind))[0][0] for kind in ("replace", "zero-out")
    )
    assert (moved, emptied) == (pytest.approx(2.0 / tau), pytest.approx(1.0 / tau))


# From zero-out to replace.


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.0, 3.0))
def test_the_step_from_zero_out_to_replace_holds_for_any_laws(seed, epsilon):
    """Three laws P, E, Q with both of P, Q near E: P and Q are as near as `implied` says."""
    rng = np.random.default_rng(seed)
    p, e, q = rng.dirichlet(np.full(5, 0.7), 3)
    pairs = ((p, e), (e, p), (q, e), (e, q))
    delta = max(hockey_stick(a, b, epsilon) for a, b in pairs)
    twice, grown = implied(epsilon, delta)
    if math.isfinite(twice):
        assert max(hockey_stick(p, q, twice), hockey_stick(q, p, twice)) <= grown * (1 + 1e-12)


def test_gaussian_noise_costs_four_times_the_rho_under_replace():
    """Two records on opposite sides of the empty one: twice the shift."""
    law = MECHANISMS["gaussian"]
    rho = law.number(1.0, DELTA)
    exact = convert.gaussian_epsilon(4 * rho, DELTA)
    assert implied(1.0, DELTA) == (2.0, pytest.approx((1 + math.e) * DELTA))
    assert exact > 2.0, "at the same delta it is more than twice"
    assert convert.gaussian_epsilon(4 * rho, (1 + math.e) * DELTA) <= 2.0
    assert implied(math.inf) == (math.inf, 1.0) and implied(1000.0, 1e-9) == (math.inf, 1.0)
    # However small delta is, and not at all where there is none.
    assert implied(1e4, 1e-310) == (math.inf, 1.0) and implied(1e4) == (2e4, 0.0)
    assert implied(1000.0) == (2000.0, 0.0)

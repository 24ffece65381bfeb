"""Plans: never less privacy than asked, the configuration written is the plan,
and an impossible target says what binds.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from typer.testing import CliRunner

import hearsay as hs
from hearsay.cli.commands import app
from hearsay.config import Config, build, dump, load, secrets_table
from hearsay.planning import as_table, plan, promised

INF = math.inf
FORMS = {
    "ldp-online": lambda: hs.ldp_online(),
    "output-perturbation": lambda: hs.output_perturbation(),
    "gradient-perturbation": lambda: hs.gradient_perturbation(),
}


def problem_and_graph(agents: int = 4):
    return hs.problems.ridge(agents=agents, records=60, dimension=3, ridge=0.2), hs.graphs.ring(
        agents
    )


@pytest.mark.parametrize(
    "case", [*range(12), *(pytest.param(c, marks=pytest.mark.slow) for c in range(12, 24))]
)
def test_never_less_privacy_than_asked(case, tmp_path):
    """Random targets, horizons, forms, mechanisms and samplers;
    and `certify` of the written configuration says the same number.
    """
    rng = np.random.default_rng(case)
    name = list(FORMS)[case % 3]
    data = {"loss": "ridge", "agents": 4, "records": 60, "dimension": 3, "ridge": 0.2}
    mechanism = "gaussian" if rng.random() < 0.4 else "laplace"
    table = {"name": name, "mechanism": mechanism}
    if name != "ldp-online":
        table["sampling"] = str(rng.choice(["cyclic", "subset", "fresh", "resample"]))
    endless = rng.random() < 0.4 and table.get("sampling", "fresh") == "fresh"
    horizon = INF if endless else int(rng.integers(1, 40))
    described = Config(problem=data, algorithm=table, privacy={"delta": 1e-5}, run={"steps": 30})
    algorithm, problem, graph = build(described)
    targets = (
        np.exp(rng.uniform(-4, 3, 4)).tolist()
        if rng.random() < 0.5
        else float(np.exp(rng.uniform(-4, 3)))
    )
    delta = float(10 ** rng.uniform(-9, -2)) if mechanism == "gaussian" else None
    found = plan(
        algorithm, problem, graph, horizon, targets, delta=delta, exponents=bool(rng.random() < 0.5)
    )
    asked = np.broadcast_to(targets, 4)
    assert np.all(np.array(found.certificate.epsilon) <= asked)
    assert np.all(np.array(found.certificate.epsilon) >= asked * (1 - 2e-6))
    path = tmp_path / "plan.toml"
    path.write_text(dump(found.config(described)))
    again, problem, graph = build(load(path))
    assert again == found.algorithm
    assert (
        hs.certify(again, problem, graph, horizon, delta=delta).epsilon == found.certificate.epsilon
    )


def test_chosen_exponents_beat_every_other_on_the_grid():
    """By exhaustion over a coarse grid of schedules that satisfy Theorem 7 and Theorem 5
    with the same room.
    """
    found = plan(
        hs.gradient_perturbation(sampling=hs.Subset("(k+1)^1.2")),
        hs.problems.estimation(),
        hs.graphs.ring(6),
        INF,
        1.0,
        exponents=True,
    )
    best = 0.0
    for alpha in np.arange(0.5, 0.99, 0.02):
        for beta in np.arange(0.3, alpha - 0.01, 0.02):
            for eta in np.arange(0.0, min(beta, alpha - beta) / 2 + 1e-9, 0.02):
                best = max(best, min(beta - 2 * eta, alpha - beta - 2 * eta))
    assert found.rate == pytest.approx(best, abs=1e-9)
    assert found.rate == promised(found.algorithm)
    size = found.algorithm.sampling.size.law.exponent
    assert found.oracle == pytest.approx((1 + size) / found.rate)
    assert size + found.algorithm.noise_for(0).exponent > 1


def test_a_step_that_never_leaves_the_start_is_not_chosen():
    """With a small step scale, 1/k steps would forget the start like k^-0.02:
    the plan takes larger ones and a smaller asymptotic rate.
    """
    problem, graph = hs.problems.estimation(), hs.graphs.ring(6)
    fast = plan(
        hs.gradient_perturbation(sampling=hs.Fresh("(k+1)^1.2")),
        problem,
        graph,
        2000,
        1.0,
        exponents=True,
    )
    slow = plan(
        hs.gradient_perturbation(step=hs.PowerLaw(0.01, -0.8), sampling=hs.Fresh("(k+1)^1.2")),
        problem,
        graph,
        2000,
        1.0,
        exponents=True,
    )
    assert fast.algorithm.step.exponent < slow.algorithm.step.exponent
    steps = slow.algorithm.step(np.arange(2000))
    assert math.exp(-2 * steps.sum()) <= 2000**-slow.rate * 1.1


@pytest.mark.slow
def test_a_sample_budget_is_kept():
    problem, graph = hs.problems.estimation(frozen=True), hs.graphs.ring(6)
    algorithm = hs.output_perturbation(sampling=hs.Subset("(k+1)^1.1"))
    for samples in (100, 5_000):
        found = plan(algorithm, problem, graph, 100, 1.0, exponents=True, samples=samples)
        assert found.records <= samples
    endless = plan(algorithm, problem, graph, INF, 1.0, exponents=True, samples=1e6)
    free = plan(algorithm, problem, graph, INF, 1.0, exponents=True)
    assert endless.oracle < free.oracle


def test_impossible_targets_say_what_binds():
    problem, graph = problem_and_graph()
    with pytest.raises(
        ValueError, match="samples must be at least 100, one record for each of 100 steps, got 50"
    ):
        plan(hs.output_perturbation(), problem, graph, 100, 1.0, samples=50)
    with pytest.raises(
        ValueError, match=r"samples must be at least .*, what cyclic with .* uses in that horizon"
    ):
        plan(hs.output_perturbation(), problem, graph, 100, 1.0, samples=150)
    stream, six = hs.problems.estimation(), hs.graphs.ring(6)
    flat = hs.gradient_perturbation(noise=hs.Constant(1.0), sampling=hs.Subset("(k+1)^0.9"))
    with pytest.raises(
        ValueError,
        match=r"no amount of noise .* c_k / b_k decays like k\^-0.9, .* the exponent must exceed 1",
    ):
        plan(flat, stream, six, INF, 1.0)
    with pytest.raises(
        ValueError,
        match=r"no choice of exponents meets the target: forgetting the start within 30 steps",
    ):
        plan(
            hs.gradient_perturbation(step=hs.PowerLaw(1e-4, -0.8), sampling=hs.Subset(50)),
            stream,
            six,
            30,
            1.0,
            exponents=True,
        )
    with pytest.raises(ValueError, match="each record keeps its weight forever"):
        plan(hs.output_perturbation(), problem, graph, INF, 1.0, exponents=True)
    with pytest.raises(ValueError, match=r"exponents can be chosen for .*, not for dsgd"):
        plan(hs.dsgd(), problem, graph, 10, 1.0, exponents=True)
    with pytest.raises(ValueError, match="epsilon must be positive, got 0"):
        plan(hs.dsgd(), problem, graph, 10, 0.0)
    with pytest.raises(ValueError, match="horizon must be at least 1 message, or inf, got 0"):
        plan(hs.dsgd(), problem, graph, 0, 1.0)


@pytest.mark.parametrize("name", list(hs.REGISTRY))
def test_every_algorithm_survives_the_trip_through_a_table(name):
    law = hs.Constant if "federated" in name else lambda scale: hs.PowerLaw(scale, 0.1)
    more = {"weights": (1.0, 2.0, 0.1, 1 / 3)} if name == "weighted-erm" else {}
    if name != "federated-noiseless":
        more["noise"] = [law(0.1 * i + 1 / 3) for i in range(4)]
    algorithm = hs.REGISTRY[name](**more)
    table = as_table(algorithm)
    again, _, _ = build(
        load_text(
            dump(Config(problem={"loss": "ridge", "agents": 4, "records": 20}, algorithm=table))
        )
    )
    assert again == algorithm


def load_text(text: str) -> Config:
    import tomllib

    return Config(**tomllib.loads(text))


@pytest.mark.slow
def test_the_command_writes_what_run_accepts(tmp_path):
    out = tmp_path / "sub" / "plan.toml"
    words = [
        "plan",
        "gradient-perturbation",
        "--loss",
        "estimation",
        "--agents",
        "6",
        "--epsilon",
        "1",
        "--exponents",
        "--horizon",
        "100",
        "--out",
        str(out),
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    for text in ("predicted rate", "oracle complexity", "hearsay run --config", "Theorem 7"):
        assert text in result.output
    folder = tmp_path / "run"
    result = CliRunner().invoke(
        app, ["run", "--config", str(out), "--steps", "20", "--seeds", "1", "--out", str(folder)]
    )
    assert result.exit_code == 0, result.output
    assert (folder / "private-report.html").exists()


@pytest.mark.parametrize("secrets", [hs.Secrets(1), hs.Secrets(1, 2.0, hs.graphs.ring(5))])
def test_a_plan_carries_secrets_with_their_ratio_in_numbers(secrets, tmp_path):
    table = {"name": "gradient-perturbation", "mechanism": "gaussian"}
    described = Config(
        problem={"loss": "ridge", "agents": 5, "records": 20, "dimension": 2, "clip": 0.5},
        algorithm=table,
        privacy={"delta": 1e-5, "epsilon": 1.0},
        secrets=secrets_table(secrets),
    )
    algorithm, problem, graph = build(described.without("privacy", "epsilon"))
    found = plan(algorithm, problem, graph, 10, [1.0, 2.0, 1.5, 3.0, 1.2], delta=1e-5)
    assert np.all(np.array(found.certificate.epsilon) <= [1.0, 2.0, 1.5, 3.0, 1.2])
    assert min(found.certificate.all_collude) > min(found.certificate.epsilon)
    config = found.config(described)
    assert config.secrets["ratio"] == algorithm.shared(5).ratios[0]
    path = tmp_path / "plan.toml"
    path.write_text(dump(config))
    again, problem, graph = build(load(path))
    certificate = hs.certify(again, problem, graph, 10, delta=1e-5)
    assert certificate.epsilon == found.certificate.epsilon
    assert certificate.secrets == found.certificate.secrets

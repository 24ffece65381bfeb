"""Deployed equals simulated: the same seeds give the same models, whatever carries the messages."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import hearsay as hs
from hearsay.config import build_problem
from hearsay.deploy.deployment import deployment
from hearsay.deploy.settings import load
from tests.deploy.networks import NAMES, Processes, models, run_threads, write

SEED, STEPS = 3, 12
FEDERATED = ("correlated-federated", "federated-independent", "federated-noiseless")
SECRET = {
    "poisson": {"sampling": "poisson", "sample_rate": 0.2},
    "poisson with a cap": {"sampling": "poisson", "sample_rate": 0.6, "sample_cap": 20},
    "subset": {"sampling": "subset", "sample_size": 3},
}
FOUR_PAPERS = {
    "ldp-online": {},
    "gradient-tracking": {"graph": {"kind": "five-agents", "weight": 0.4}},
    "output-perturbation": {
        "algorithm": {
            "name": "output-perturbation",
            "sampling": "cyclic",
            "sample_size": "(k+1)^0.5",
        }
    },
    "gradient-perturbation": {
        "algorithm": {"name": "gradient-perturbation", "sampling": "subset", "sample_size": 3}
    },
    "correlated-federated": {
        "algorithm": {"name": "correlated-federated", "sampling": "cyclic", "sample_size": 2}
    },
}


def tables(name: str) -> dict:
    """Settings under which every algorithm runs for a dozen rounds on 60 records an agent."""
    found = {"algorithm": {"name": name}, **FOUR_PAPERS.get(name, {})}
    if name in FEDERATED:
        found["algorithm"] = {"name": name, "sampling": "cyclic", "sample_size": 2}
    # Nothing to calibrate, or no budget: test mode does not mind.
    if name in (
        "ternary-dsgd",
        "federated-noiseless",
        "quantized-dsgd",
    ):
        found["privacy"] = {}
        found["algorithm"] = {
            **found["algorithm"],
            "noise": 0.0 if name == "federated-noiseless" else 5.0,
        }
    return found


def simulated(path) -> np.ndarray:
    network = load(path)
    plan = deployment(network, None)
    problem = build_problem(network.config, agents=len(network.members))
    graph, delta = (
        replace(plan.graph, lossy=False),
        None if plan.algorithm.mechanism == "laplace" else 1e-5,
    )
    run = hs.simulate(
        plan.algorithm,
        problem,
        graph,
        steps=plan.messages,
        seeds=[SEED],
        delta=delta,
        reference=False,
        regret=False,
    )
    return run.models[0]


@pytest.mark.parametrize("name", list(hs.REGISTRY))
def test_every_algorithm_deployed_equals_simulated(name, tmp_path):
    path = write(tmp_path, **tables(name))
    agents = run_threads(load(path), SEED)
    deployed = np.stack([agents[n].model for n in NAMES])
    np.testing.assert_allclose(deployed, simulated(path), rtol=0, atol=1e-6)
    assert np.abs(deployed).max() > 1e-3, (
        "nobody has learnt anything: the comparison would say nothing"
    )


@pytest.mark.parametrize("chebyshev", [False, True], ids=["plain", "chebyshev"])
def test_averaging_rounds_deployed_equal_simulated_ones_to_the_last_bit(chebyshev, tmp_path):
    """With weights of 1/4 a sum of three terms is the same in any order of two."""
    algorithm = {
        "name": "gradient-perturbation",
        "sampling": "cyclic",
        "sample_size": 3,
        "step": 0.125,
        "coupling": 0.5,
    }
    more = {"averaging": 2, "chebyshev": chebyshev}
    path, once = (
        write(
            tmp_path,
            run=run,
            file=f"{run}.toml",
            graph={"kind": "ring", "weight": 0.25},
            algorithm=algorithm | options,
        )
        for run, options in (("averaged", more), ("once", {}))
    )
    agents = run_threads(load(path), SEED)
    deployed = np.stack([agents[n].model for n in NAMES])
    np.testing.assert_array_equal(deployed, simulated(path))
    assert np.abs(deployed - simulated(once)).max() > 1e-3, "averaging must have done something"


@pytest.mark.parametrize("sampler", SECRET)
@pytest.mark.parametrize("name", ["gradient-perturbation", "gradient-tracking"])
def test_secret_batches_rehearsed_are_the_simulators(name, sampler, tmp_path):
    """Methods that use the batch of a round after its message, and before it. Agents hold from 9 to
    60 records.
    """
    counts = np.array([60, 37, 21, 60, 9])
    full = hs.problems.ridge(agents=5, records=60, dimension=4, radius=3.0)
    path = from_files(
        tmp_path,
        full,
        counts,
        algorithm={"name": name, "noise": 0.5, **SECRET[sampler]},
        graph={"kind": "five-agents", "weight": 0.4} if "tracking" in name else {"kind": "ring"},
        privacy={},
    )
    agents = run_threads(load(path), SEED)
    plan = agents["alice"].plan
    held = full.records._replace(held=counts)
    problem = replace(full, counts=counts, records=held)
    options = {"steps": plan.messages, "seeds": [SEED], "reference": False, "regret": False}
    run = hs.simulate(plan.algorithm, problem, plan.graph, **options)
    deployed = np.stack([agents[n].model for n in NAMES])
    np.testing.assert_allclose(deployed, run.models[0], rtol=0, atol=1e-6)
    assert np.abs(deployed).max() > 1e-3


@pytest.mark.parametrize(
    "names",
    [
        ["gradient-tracking"],
        pytest.param(list(FOUR_PAPERS), marks=pytest.mark.slow, id="four papers"),
    ],
)
def test_five_processes_equal_the_simulator(tmp_path, names):
    """Real processes; messages flow only along the edges, also where they are directed."""
    paths = [write(tmp_path, run=name, file=f"{name}.toml", **tables(name)) for name in names]
    with Processes(paths, seed=SEED) as fleet:
        fleet.start_all()
        assert fleet.watch() == 0
    for path in paths:
        np.testing.assert_allclose(models(path), simulated(path), rtol=0, atol=1e-6)
        network, plan = load(path), deployment(load(path), None)
        assert plan.messages == STEPS
        for i, member in enumerate(network.members):
            heard = {NAMES[j] for j in range(5) if hears(plan, i, j)}
            listed = json.loads((member.state / f"{member.name}.subscribed.json").read_text())
            assert sorted(listed) == sorted(f"hearsay/{network.run}/{name}/*" for name in heard)
    directed = deployment(load(paths[names.index("gradient-tracking")]), None)
    assert any(
        hears(directed, i, j) and not hears(directed, j, i) for i in range(5) for j in range(5)
    )


def hears(plan, i: int, j: int) -> bool:
    if "average" in plan.algorithm.channels.values():
        return i != j
    both = (
        plan.graph.weights.toarray()
        + ("tracker" in plan.algorithm.channels) * plan.graph.pushed.toarray()
    )
    return both[i, j] > 0


def from_files(folder, problem, counts, **tables):
    """A network whose agents read the first so many of their records from files."""
    for i, name in enumerate(NAMES):
        np.savez(
            folder / f"{name}.npz",
            features=problem.features[i, : counts[i]],
            labels=problem.labels[i, : counts[i]],
        )
    bounds = {"feature_bound": problem.loss.feature_bound, "label_bound": problem.loss.label_bound}
    return write(
        folder,
        problem={"loss": "ridge", "dimension": 4, "radius": 3.0, **bounds},
        agents={
            name: {"data": f"{name}.npz", "records": int(held)}
            for name, held in zip(NAMES, counts, strict=True)
        },
        **tables,
    )


def test_records_from_files_are_the_simulators_records(tmp_path):
    problem = hs.problems.ridge(agents=5, records=60, dimension=4, radius=3.0)
    path = from_files(tmp_path, problem, problem.counts)
    agents = run_threads(load(path), SEED)
    plan = agents["alice"].plan
    run = hs.simulate(plan.algorithm, problem, plan.graph, steps=plan.messages, seeds=[SEED])
    np.testing.assert_allclose(
        np.stack([agents[n].model for n in NAMES]), run.models[0], rtol=0, atol=1e-6
    )

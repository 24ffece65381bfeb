"""Networks of somebody's own, deployed: [problem] model = "package.module:function"."""

from __future__ import annotations

import numpy as np
import pytest

import hearsay as hs
from hearsay.deploy.deployment import deployment
from hearsay.deploy.settings import load
from tests.deploy.networks import run_threads, write

NAMES, SEED, SHAPE = ("alice", "bob"), 3, (1, 4, 4)
COUNTS = {"alice": 12, "bob": 9}
EQUINOX = """
import equinox as eqx
import jax

class Net(eqx.Module):
    layer: eqx.nn.Linear

    def __call__(self, image):
        return self.layer(image.ravel())

def net():
    return Net(eqx.nn.Linear(16, 3, key=jax.random.key(1)))

constant = 3
"""
TORCH = """
from torch import nn

def net():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3)
    )
"""


def dealt():
    rng = np.random.default_rng(0)
    return [
        (rng.normal(size=(count, *SHAPE)).astype(np.float32), rng.integers(0, 3, count))
        for count in COUNTS.values()
    ]


def network(folder, model):
    """A net.toml of two agents with files of their own."""
    for name, (features, labels) in zip(NAMES, dealt(), strict=True):
        np.savez(folder / f"{name}.npz", features=features, labels=labels)
    return write(
        folder,
        names=NAMES,
        agents={name: {"records": COUNTS[name], "data": f"{name}.npz"} for name in NAMES},
        problem={
            "loss": "neural",
            "model": model,
            "shape": list(SHAPE),
            "classes": 3,
            "bytes": False,
            "head_start": 12,
            "clip": 0.5,
            "compute": "float32",
            "seed": 7,
        },
        algorithm={
            "name": "gradient-perturbation",
            "step": 0.5,
            "sampling": "cyclic",
            "sample_size": 4,
        },
        run_table={"steps": 3},
    )


def compared(path, place, problem):
    """Rehearsed as two agents, and simulated: the same models, and one certificate."""
    known = load(path, [place])
    plan = deployment(known, None, rehearsed=True)
    agents = run_threads(known, SEED)
    deployed = np.stack([agents[name].model for name in NAMES])
    run = hs.simulate(plan.algorithm, problem, plan.graph, steps=plan.messages, seeds=[SEED])
    np.testing.assert_allclose(deployed, run.models[0], rtol=0, atol=1e-9)
    assert np.abs(deployed - problem.start).max() > 1e-3, "nobody has learnt anything"
    assert plan.task.change == problem.change and plan.task.dimension == problem.dimension
    assert max(plan.certificate.epsilon) <= 8.0


def in_equinox(folder, monkeypatch):
    """The place of a module, and the problem that a simulation has with it."""
    (folder / "own_equinox.py").write_text(EQUINOX)
    monkeypatch.syspath_prepend(folder)
    import own_equinox

    return "own_equinox:net", hs.problems.neural(
        dealt(), model=own_equinox.net(), classes=3, clip=0.5, head_start=12, compute="float32"
    )


def test_agents_build_the_model_that_stands_at_a_place(tmp_path, monkeypatch):
    place, problem = in_equinox(tmp_path, monkeypatch)
    task = deployment(load(network(tmp_path, place), [place]), 1, rehearsed=True).task
    assert (task.dimension, task.change) == (problem.dimension, problem.change)
    np.testing.assert_array_equal(task.start, problem.start)


@pytest.mark.slow
def test_an_equinox_module_deployed_is_the_one_that_is_simulated(tmp_path, monkeypatch):
    place, problem = in_equinox(tmp_path, monkeypatch)
    compared(network(tmp_path, place), place, problem)


def test_a_torch_module_deployed_is_the_one_that_is_simulated(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="needs torch: make test-torch runs it")
    (tmp_path / "own_torch.py").write_text(TORCH)
    monkeypatch.syspath_prepend(tmp_path)
    import own_torch

    place = "own_torch:net"
    # Agents build it from the seed in [problem].
    torch.manual_seed(7)
    sets = [
        torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y)) for x, y in dealt()
    ]
    problem = hs.problems.from_torch(own_torch.net(), sets, clip=0.5, head_start=12)
    compared(network(tmp_path, place), place, problem)


def test_a_file_alone_imports_nothing(tmp_path, monkeypatch):
    (tmp_path / "own_bad.py").write_text("raise SystemError('it was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = network(tmp_path, "own_bad:net")
    with pytest.raises(ValueError, match=r"model in \[problem\] must not .*--allow own_bad:net"):
        deployment(load(path), None)
    with pytest.raises(ValueError, match="importing own_bad fails with SystemError"):
        deployment(load(path, ["own_bad:net"]), None)


@pytest.mark.parametrize(
    "place, message",
    [
        ("own_places:nothing", r"model in \[problem\] must be the place of a function"),
        ("own_places:constant", r"model in \[problem\] must be the place of a function"),
        ("absent_module:net", "there is no module 'absent_module'"),
    ],
)
def test_places_without_a_model_are_refused(place, message, tmp_path, monkeypatch):
    (tmp_path / "own_places.py").write_text(EQUINOX)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=message):
        deployment(load(network(tmp_path, place), [place]), None)

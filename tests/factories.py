"""What many tests need: a problem made of arrays, admissible records, and a tiny experiment."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.problems import Ball, Problem
from hearsay.problems.data.records import Records
from hearsay.problems.sampling.samplers import Arrivals
from hearsay.simulation import keys


def holding(
    loss: Any,
    features: np.ndarray,
    labels: np.ndarray,
    domain: Any = Ball(50.0),
    *,
    name: str = "small",
    per_step: int = 1,
    head_start: int = 0,
    **options: Any,
) -> Problem:
    """Agents that hold all of these records (agent, record, ...); the first one's are the test
    set.
    """
    counts = np.full(len(features), features.shape[1])
    return Problem(
        name,
        loss,
        domain,
        features.shape[2:],
        counts,
        Arrivals(per_step, head_start),
        records=Records(features, labels, counts),
        test_features=features[0],
        test_labels=labels[0],
        **{"classification": False, **options},
    )


def keys_of(algorithm: Any, graph: Any, agent: int, seed: int = 0) -> Any:
    """What `draw` and `draws` of that agent are called with in a run with that seed."""
    every = keys.of(algorithm.keys, graph, jnp.asarray([seed]))
    return jax.tree.map(lambda x: x[0, agent], every).given


def uniform(agents: int, held: int, dimension: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Features of length at most 1 and labels between -1 and 1, always the same ones."""
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (agents, held, dimension)) / math.sqrt(dimension)
    return features, rng.uniform(-1, 1, (agents, held))


def in_ball(rng: np.random.Generator, shape: tuple[int, int, int], bound: float) -> np.ndarray:
    """Features of every direction, no longer than the bound."""
    features = rng.normal(size=shape)
    lengths = bound * rng.uniform(size=(*shape[:2], 1))
    return features * (lengths / np.linalg.norm(features, axis=2, keepdims=True))


def reproduced(name: str, folder: Path, **options: Any) -> tuple[str, list[str]]:
    """An experiment at a hundredth of its scale with two seeds, unless told otherwise: the text of
    its report, and the stages that it went through, each to its end.
    """
    from hearsay.experiments import EXPERIMENTS

    stages: dict[str, tuple[int, int]] = {}
    usual = {"data_dir": None, "seeds": 2, "scale": 0.01}
    report = EXPERIMENTS[name](
        folder,
        progress=lambda stage, done, total: stages.update({stage: (done, total)}),
        **{**usual, **options},
    )
    assert all(done == total for done, total in stages.values())
    return report.read_text(encoding="utf-8"), list(stages)

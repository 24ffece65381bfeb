"""Fifty agents on one machine, each a process of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hearsay as hs
from hearsay.config import build_problem
from hearsay.deploy.deployment import deployment
from hearsay.deploy.settings import load
from tests.deploy.networks import SECONDS, Processes, models, write


@pytest.mark.slow
def test_fifty_agents_run_and_agree_with_the_simulator(tmp_path):
    names = [f"agent{i:02d}" for i in range(50)]
    path = write(
        tmp_path,
        names=names,
        graph={"kind": "random", "degree": 4},
        run_table={"steps": 30},
    )
    with Processes([path], names=names) as fleet:
        fleet.start_all()
        assert fleet.watch(2 * SECONDS) == 0
    network = load(path)
    plan = deployment(network, None)
    problem, graph = build_problem(network.config, agents=50), replace(plan.graph, lossy=False)
    run = hs.simulate(
        plan.algorithm, problem, graph, steps=30, seeds=[3], reference=False, regret=False
    )
    np.testing.assert_allclose(models(path), run.models[0], rtol=0, atol=1e-6)

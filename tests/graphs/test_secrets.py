"""Who shares noise with whom: what is refused, and in which words."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import hearsay as hs

PROBLEM = hs.problems.ridge(agents=5, records=20, dimension=2, clip=0.5)
RING = hs.graphs.ring(5)


def gradient(secrets, **more) -> hs.Algorithm:
    return hs.gradient_perturbation(mechanism="gaussian", noise=1.0, secrets=secrets, **more)


def refused(secrets: hs.Secrets, message: str, agents: int = 5) -> None:
    with pytest.raises(ValueError, match=message):
        secrets.check(agents)


def test_a_graph_that_is_not_connected_names_who_stands_alone():
    around = ((0, 1), (1, 2), (0, 2))
    refused(
        hs.Secrets(0, graph=around),
        r"secrets must join every agent to others, got agents 3, 4 without any: shared noise does"
        " nothing for them",
    )
    refused(
        hs.Secrets(0, graph=(*around, (3, 4))),
        r"the secrets graph must be connected, got 2 parts: agents 3, 4 share nothing with the"
        " others",
    )
    for ratio in (None, 2.0):
        algorithm = gradient(hs.Secrets(0, ratio, around))
        for call in (
            lambda a: hs.certify(a, PROBLEM, RING, 5, delta=1e-5),
            lambda a: hs.calibrate(a, PROBLEM, RING, 5, 1.0, delta=1e-5),
            lambda a: hs.simulate(a, PROBLEM, RING, steps=5, seeds=1, delta=1e-5),
        ):
            with pytest.raises(ValueError, match="got agents 3, 4 without any"):
                call(algorithm)


def test_as_many_colluders_as_others_leave_nothing_to_share():
    for colluders in (4, 5, 100):
        refused(
            hs.Secrets(colluders),
            rf"colluders must be below 4: if all other agents collude, .*, got {colluders}",
        )
    hs.Secrets(3).check(5)
    # Two agents: against strangers who see their messages, not against each other.
    hs.Secrets(0).check(2)
    refused(hs.Secrets(1), "colluders must be below 1", agents=2)
    refused(hs.Secrets(0), "secrets must be left out for a single agent", agents=1)


def test_colluders_that_can_cut_the_graph_are_refused():
    refused(
        hs.Secrets(2, graph=RING),
        "the secrets graph must stay connected without any 2 agents, got one that 2 can cut",
    )
    hs.Secrets(1, graph=RING).check(5)
    refused(hs.Secrets(3, graph="random", degree=2), "got one that 2 can cut", agents=8)


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("gradient_perturbation", {"mechanism": "laplace"}, "left out with laplace noise: only"),
        ("ldp_online", {}, "left out with laplace noise: only sums of Gaussian noise"),
        ("ternary_dsgd", {}, "left out with ternary noise: only sums of Gaussian noise"),
        ("asynchronous_gossip", {"mechanism": "gaussian"}, "left out for asynchronous-gossip: two"),
        ("sdm_dsgd", {"mechanism": "gaussian"}, "left out for sdm-dsgd: agents send different"),
    ],
)
def test_noise_and_algorithms_that_share_nothing(name, more, message):
    with pytest.raises(ValueError, match=f"secrets must be {message}"):
        getattr(hs, name)(secrets=hs.Secrets(1), **more)


def test_something_else_in_the_place_of_secrets():
    for given in (2, "complete", {"colluders": 1}):
        with pytest.raises((ValueError, TypeError), match="secrets must be hearsay.Secrets"):
            gradient(given)


def test_noise_that_is_not_in_proportion_is_refused():
    laws = [hs.PowerLaw(1.0, 0.1)] * 4 + [hs.PowerLaw(1.0, 0.2)]
    algorithm = replace(gradient(hs.Secrets(1)), noise=tuple(laws))
    with pytest.raises(ValueError, match="noise must be in the same proportion at all times"):
        hs.certify(algorithm, PROBLEM, RING, 5, delta=1e-5)
    silent = replace(algorithm, noise=(*laws[:4], hs.Constant(0.0)))
    with pytest.raises(ValueError, match="noise must be positive for every agent with secrets"):
        hs.certify(silent, PROBLEM, RING, 5, delta=1e-5)
    tracking = hs.gradient_tracking(mechanism="gaussian", secrets=hs.Secrets(1))
    first, second = (n for n in tracking.options if n.endswith("noise"))
    law = getattr(tracking, first)
    law = law[0] if isinstance(law, tuple) else law
    uneven = replace(tracking, **{first: tuple(law.scaled(1.0 + i) for i in range(5)), second: law})
    with pytest.raises(ValueError, match="the same proportion in every message field"):
        hs.certify(uneven, PROBLEM, RING, 5, delta=1e-5)


def test_secret_batches_with_correlated_noise_are_charged_in_full():
    problem = hs.problems.ridge(agents=5, records=20, dimension=2, clip=0.5, adjacency="zero-out")
    both = gradient(
        hs.Secrets(1), sampling=hs.Poisson(0.2), correlation="banded", width=3, horizon=5
    )
    found = hs.certify(both, problem, RING, 5, delta=1e-5)
    assert any("charged as if a record were in every one" in w for w in found.warnings)
    assert not found.amplified(0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"colluders": -1}, "colluders must be"),
        ({"colluders": 1.5}, "colluders must be"),
        ({"ratio": 0.0}, "ratio must be positive, got 0"),
        ({"ratio": (1.0, -1.0)}, "ratio must be positive"),
        ({"ratio": math.inf}, "ratio must be"),
        ({"graph": "ring"}, "graph must be one of complete, random, got 'ring'"),
        ({"graph": 5}, "graph must be complete, random, a graph, or pairs of agents"),
        ({"graph": ((0, 1, 2),)}, "graph must be complete, random, a graph, or pairs of agents"),
        ({"graph": ((1, 1),)}, "graph must be pairs of different agents"),
        ({"graph": ()}, "graph must be pairs of agents, each there once"),
        ({"graph": ((0, 1), (1, 0))}, "graph must be pairs of agents, each there once"),
        ({"graph": ((0, 1), (1, 2)), "ratio": (1.0,)}, "ratio must be one number, or one for each"),
        ({"degree": 4, "graph": "complete"}, "degree must be left out: only random graphs"),
        ({"degree": 0}, "degree must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_fields_are_checked_at_construction(fields, message):
    with pytest.raises((ValueError, TypeError), match=message):
        hs.Secrets(**{"colluders": 1, **fields})


def test_numbers_of_agents_that_do_not_fit():
    with pytest.raises(ValueError, match="graph must be pairs of agents 0 to 4, got 7"):
        hs.Secrets(0, graph=((0, 7),)).shared(5)
    with pytest.raises(ValueError, match="graph must be pairs of agents 0 to 4, got 5"):
        hs.Secrets(0, graph=hs.graphs.ring(6)).shared(5)
    with pytest.raises(ValueError, match="ratios must be one number, or one for each of the 10"):
        hs.Secrets(0, (1.0, 2.0)).shared(5)


def test_pairs_in_any_order_keep_their_ratios():
    one = hs.Secrets(0, (1.0, 2.0, 3.0), ((2, 1), (0, 2), (1, 0)))
    assert one == hs.Secrets(0, (3.0, 2.0, 1.0), ((0, 1), (0, 2), (1, 2)))
    assert one.shared(3).ratios == (3.0, 2.0, 1.0)
    arrays = hs.Secrets(0, np.array([1.0, 2.0, 3.0]), np.array([(2, 1), (0, 2), (1, 0)]))
    assert hs.Secrets(1, 2.0, RING).graph == ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4))
    assert arrays == one and hash(arrays) == hash(one)

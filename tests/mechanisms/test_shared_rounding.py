"""The law of agents' noise that shares terms, on a lattice, by exact summation on small graphs and
coarse lattices, where its error can be seen; the account of the lattice in use.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hearsay.mechanisms.shared_rounding import totals_bits
from hearsay.privacy.account import Account
from hearsay.privacy.coalitions import Shared
from hearsay.privacy.float64 import Float64, Magnitudes
from hearsay.privacy.participation import Every
from hearsay.privacy.recursion import MEMORYLESS, Recursion, Release
from hearsay.privacy.recursion_account import RecursionAccount
from hearsay.privacy.sampled import PoissonAccount
from hearsay.schedules import Constant

GRAPHS = {
    "pair": (2, ((0, 1),)),
    "path": (3, ((0, 1), (1, 2))),
    "triangle": (3, ((0, 1), (0, 2), (1, 2))),
}


def matrix(agents: int, pairs) -> np.ndarray:
    signs = np.zeros((agents, len(pairs)))
    for e, (i, j) in enumerate(pairs):
        signs[i, e], signs[j, e] = 1.0, -1.0
    return signs


def covariance(own: np.ndarray, shared: np.ndarray, signs: np.ndarray) -> np.ndarray:
    return np.diag(own**2) + signs @ np.diag(shared**2) @ signs.T


def law(own: np.ndarray, shared: np.ndarray, signs: np.ndarray, points: np.ndarray) -> np.ndarray:
    """P(N = n) up to a constant: the sum over whole numbers of all pairs."""
    reach = int(9 * shared.max()) + 1
    each = [np.arange(-reach, reach + 1)] * len(shared)
    flows = np.stack(np.meshgrid(*each, indexing="ij"), axis=-1).reshape(-1, len(shared))
    left = points[:, None, :] - (flows @ signs.T)[None]
    energy = np.sum((left / own) ** 2, axis=-1) + np.sum((flows / shared) ** 2, axis=-1)[None]
    return np.exp(-energy / 2).sum(axis=1)


def made(name: str, least: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """(own scales, shared scales, signs, the bound on e) of a graph on a coarse lattice."""
    agents, pairs = GRAPHS[name]
    signs = matrix(agents, pairs)
    own = least * np.array([1.0, 1.2, 1.1])[:agents]
    shared = least * np.array([1.0, 1.5, 1.3])[: len(pairs)]
    degree = int(np.abs(signs).sum(axis=1).max())
    return own, shared, signs, 2.0 ** -totals_bits(len(pairs), degree, least)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("least", [0.9, 1.2])
def test_totals_are_the_discrete_gaussian_of_their_covariance(name, least):
    """P(N = n) exp(n' S^-1 n / 2) is the same for all n, to the bound that `totals_bits` states;
    and on these coarse lattices one can see that it is not quite the same.
    """
    own, shared, signs, error = made(name, least)
    points = np.array(list(itertools.product(range(-1, 2), repeat=len(own))))
    inverse = np.linalg.inv(covariance(own, shared, signs))
    flat = law(own, shared, signs, points) * np.exp(
        np.einsum("ni,ij,nj->n", points, inverse, points) / 2
    )
    assert error < 1
    assert 1 + 1e-9 < flat.max() / flat.min() <= (1 + error) / (1 - error)


@pytest.mark.parametrize("name", GRAPHS)
def test_given_the_others_noise_one_agent_is_alone(name):
    """Renyi divergences of a shift by whole steps, given the others' totals, far out too."""
    own, shared, signs, error = made(name, 1.2)
    price = float(np.linalg.inv(covariance(own, shared, signs))[0, 0])
    reach, others = 26, [(0,) * (len(own) - 1), (3,) * (len(own) - 1), (-4, 5)[: len(own) - 1]]
    for given in others:
        points = np.array([(n, *given) for n in range(-reach, reach + 1)])
        found = law(own, shared, signs, points)
        found /= found.sum()
        around = 3 * math.exp(-2 * math.pi**2 / price)
        for shift, order in itertools.product((1, 2), (1.5, 2.0, 4.0)):
            moved, still = found[:-shift], found[shift:]
            both = (moved > 1e-280) & (still > 1e-280)
            total = np.sum(np.exp(order * np.log(moved[both]) + (1 - order) * np.log(still[both])))
            ideal = order * (order - 1) * shift**2 * price / 2
            room = order * math.log((1 + error) / (1 - error)) + math.log1p(around)
            assert math.log(total) <= ideal + room + 1e-9
            # That the bound is about this very law: it is not far above.
            assert math.log(total) >= ideal - room - 1e-6


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("least", [1.2, 6.0])
def test_the_best_flow_of_whole_numbers(name, least):
    """What TOGETHER's argument gives: between the real optimum and that with the stated excess."""
    own, shared, signs, _ = made(name, least)
    price = float(np.linalg.inv(covariance(own, shared, signs))[0, 0])
    excess = np.sum(np.abs(signs).sum(axis=1) ** 2 / (4 * own**2)) + np.sum(1 / (4 * shared**2))
    for shift in (1, 3, 10):
        each = [np.arange(-shift - 1, shift + 2)] * len(shared)
        flows = np.stack(np.meshgrid(*each, indexing="ij"), axis=-1).reshape(-1, len(shared))
        left = shift * np.eye(len(own))[0] - flows @ signs.T
        energy = np.sum((left / own) ** 2, axis=1) + np.sum((flows / shared) ** 2, axis=1)
        assert shift**2 * price <= energy.min() + 1e-12
        assert energy.min() <= shift**2 * price + excess + 1e-12


def test_the_lattice_in_use_leaves_nothing_to_count():
    """Against n 2^-180 (1 + e^700) of delta, for any n and any graph that could be run."""
    assert totals_bits(pairs=10**12, degree=10**6) > 2**50
    assert totals_bits(pairs=1, degree=1) > 2**70
    assert totals_bits(pairs=0, degree=0) == math.inf
    assert totals_bits(pairs=10, degree=4, steps=0.2) == 0
    bits = [totals_bits(10, 4, steps) for steps in (1.5, 2.0, 4.0)]
    assert bits == sorted(bits) and bits[0] > 0


# Accounts.


def full(dimension: int) -> RecursionAccount:
    """1,000 messages of it cost about epsilon 1 with the gain of secrets."""
    recursion = Recursion(MEMORYLESS, Constant(0.1), Constant(1.0), (0.0, 0.0))
    release = Release("params", Constant(60.0), state=0.0, fresh=1.0, delay=1)
    return RecursionAccount(recursion, (release,), Every(), dimension, "gaussian")


def arithmetic() -> Float64:
    magnitudes = Magnitudes(
        step=Constant(0.1),
        coupling=Constant(1.0),
        tracking=Constant(0.0),
        resolution=0.0,
        step_noise=Constant(6.0),
    )
    return Float64(magnitudes, 1e3, 1.0, 1.0, (0.0, 1.0), 2.0, Constant(10.0), 1000.0)


def certified(account: Account) -> tuple[float, float]:
    """epsilon of 1,000 messages with secrets among five agents, against one colluder:
    (ideal, with the lattice and float64)
    """
    gain = Shared(5, (math.sqrt(10),)).gain(0, colluders=1).value
    found = [account.scaled(gain).certified(1000, 1e-5, used) for used in (None, arithmetic())]
    alone = account.certified(1000, 1e-5, arithmetic()).epsilon
    # The gain is not lost on the way.
    assert 0.3 < found[1].epsilon < 0.7 * alone
    return found[0].epsilon, found[1].epsilon


def test_a_deployed_account_with_secrets_is_the_ideal_one():
    """To 1e-6, with 100,000 numbers in each of 1,000 messages, lattice and arithmetic included."""
    ideal, found = certified(full(10**5))
    assert ideal <= found <= ideal * (1 + 1e-6)


@pytest.mark.parametrize("dimension", [10, 10**5])
def test_a_deployed_account_of_secret_batches_with_secrets(dimension):
    """What it has above the ideal one is for errors, also of batches in another order, and not for
    what is shared.
    """
    ideal, found = certified(PoissonAccount(full(dimension).scaled(0.05), 3000, 0.05, 3000))
    assert ideal <= found <= ideal * (1 + 1e-6)

"""What noise on a lattice costs when agents share part of it: what the same noise costs without a
lattice, and what rounding.py adds for one agent alone.

One number of one field of one round, in grid steps. H are the honest agents, E the pairs among
them. Agent j adds N_j = x_j + sum over its pairs of +-y_e to its rounded value, all x_j and y_e
independent discrete Gaussians of scales s_j and c_e. With the signs in a matrix B (agent, pair),
N = x + B y, and S = diag(s^2) + B diag(c^2) B' is the covariance of the same noise in the reals.

**The law of N is the discrete Gaussian of S, to a factor 1 +- e with e < exp(-2^50).** For whole
numbers n the probability of N = n is, up to a constant, the sum over all whole y of

    exp(-|y / c|^2 / 2 - |(n - B y) / s|^2 / 2) = exp(-n' S^-1 n / 2 - (y - v)' M (y - v) / 2),
    M = diag(1 / c^2) + B' diag(1 / s^2) B,    v = M^-1 B' diag(1 / s^2) n.

(Complete the square; what is left without y is n' S^-1 n, by Woodbury's identity.) By Poisson's
summation formula the sum over y of the second factor is a constant times

    1 + sum over whole k, not 0, of exp(-2 pi^2 k' M^-1 k) cos(2 pi k.v),

whatever v. With all scales at least t and at most D pairs at an agent, M <= (1 + 2 D) / t^2 (B' B
has the largest eigenvalue of the pairs' Laplacian), so with a = 2 pi^2 t^2 / (1 + 2 D) that differs
from 1 by at most

    e = (1 + 2 sum_{k >= 1} exp(-a k^2))^|E| - 1  <=  3 |E| exp(-a).

t = 2^36 (lattice.py, shared_lattice.py), D < 2^20 and |E| < 2^40 give a > 2^55. `totals_bits` is
-log2 of the bound.

**So one agent is alone.** Given the N_j of all others, N_i has probabilities proportional to
exp(-(n - m)^2 / 2 tau^2) (1 +- e), tau^2 = 1 / [S^-1]_ii, m a real number that the others' N_j
determine: the discrete Gaussian of scale tau around m. Hand all N_j of all others, of all rounds
and in advance, to the adversary, as for noise in the reals (privacy/coalitions.py): what is left is
agent i alone, with such noise in every round. Neither the order of messages matters then, nor that
a colluder has read others' messages of the same round before it answers.

What is proved for one agent's noise on a lattice holds for it. tau >= s_i >= 2^36 steps, so that
rounding moves two values apart by at most 2^-36 tau in each number. A shift by u whole steps has
Renyi divergence alpha u^2 / 2 tau^2, but for a factor of (1 + 5 exp(-2 pi^2 tau^2)) in likelihoods,
that of two sums over whole numbers around different points. And the law lies within 1 / 8 tau^2 of
N(m, tau^2), rounded, in total variation: `rounding.curve_slack` asks nothing about m. All factors
1 +- e of n numbers together are a distance of less than n 2^-4096 in total variation, which costs
(1 + e^epsilon) as much of delta: below the n 2^-180 that rounding.py leaves room for.

So an account of noise with secrets, deployed, is the agent's own account with its noise multiplied
by the gain tau / s_i >= 1, and the lattice counted as for any account: d numbers per message, not
d for every agent and pair, and nothing that grows with the graph. A message is a function of the
rounded value + N_i (it saturates once, shared_lattice.py), and so are fewer messages, or fewer
numbers of one: an agent that sleeps, or leaves out coordinates, tells no more. Scales above the
planned ones (they are rounded up) make S larger and [S^-1]_ii smaller.

**Another argument, and why it is not enough.** Spread a shift by u steps over the noise: whole
numbers (p, f) with p + B f = u at agent i and 0 at all others. By data processing the divergence
is at most (|p / s|^2 + |f / c|^2) / 2. The best real flow costs u^2 [S^-1]_ii / 2, and rounding it
adds at most sum_j deg_j^2 / 8 s_j^2 + sum_e 1 / 8 c_e^2 for each number. But that is about shifts
which do not depend on the others' noise in the same round, and a colluder that waits for their
messages can make them depend on it. Given the others' N_j, the law above is what counts.
"""

from __future__ import annotations

import math

from hearsay import _validate as require
from hearsay.mechanisms.rounding import GRID_BITS


def totals_bits(pairs: int, degree: int, steps: float = 2.0**GRID_BITS) -> float:
    """-log2 of a bound on e: how exactly the agents' noise is the discrete Gaussian of its
    covariance. Infinite without pairs, 0 where there is no such bound.

    Args:
      pairs: how many share noise.
      degree: the most pairs that one agent is in.
      steps: the smallest scale of anybody's noise, own or shared, in grid steps.

    Example:
      >>> totals_bits(pairs=10, degree=4) > 2**60
      True
    """
    pairs, degree = require.natural("pairs", pairs), require.natural("degree", degree)
    rate = 2 * math.pi**2 * require.positive("steps", steps) ** 2 / (1 + 2 * degree)
    if not pairs:
        return math.inf
    # (1 + 2 x)^|E| - 1 <= 1.4 * 2 x |E| where 2 x |E| <= 0.6, x <= 1.06 exp(-rate) for rate >= 1.
    logarithm = math.log(2.12 * pairs) - rate
    if rate < 1 or logarithm > math.log(0.6):
        return 0.0
    return max(0.0, (rate - math.log(3 * pairs)) / math.log(2))

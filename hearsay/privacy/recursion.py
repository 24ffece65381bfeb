"""One recursion for every state-perturbation algorithm, and the prices that make it additive.

Fix the transcript. The agent's private state is then a deterministic function of its data,

    s(k+1) = a_k s(k) - step_k G_k(s(k)) + (terms that depend on the transcript only),
    a_k = 1 - leak_k,

with G_k the mean gradient of step k's batch. Changing one record (adjacency.py: replacing it, or
emptying it) moves G_k by at most c_k (the exposure) at a fixed point when the record is in the
batch, and by nothing otherwise. If the
Hessians of the batch loss have their eigenvalues in the curvature interval [mu, L], the l2 distance
Phi of the two states obeys

    Phi(k+1) <= l_k Phi(k) + step_k c_k [used at k],
    l_k = max(|a_k - step_k mu|, |a_k - step_k L|),    Phi(0) = 0

because a mean-value Hessian H maps the difference by a_k I - step_k H, whose eigenvalues lie
between those two ends: with D and D' the two data sets and s, s' their states,

    G_D(s) - G_D'(s') = [G_D(s) - G_D(s')] + [G_D(s') - G_D'(s')] = H_D (s - s') + (at most c_k)

Only the Hessians of D are used, and either data set may be D. Under zero-out D is the one that HAS
the record: its batch is a mean over real records, so [mu, L] holds for H_D as it does under
replace. Of D' it need not: an empty record has no curvature but the regulariser's, and where the
records themselves are strongly convex (mu above the regulariser's) a batch with an empty one has a
smaller mu. The regulariser is outside the records, so it stays in H_D, and cancels in c_k.

A projection onto a convex set only shrinks Phi. A release with Laplace
noise of scale b_k whose value moves by at most `state` Phi(k) + `fresh` c_k [used at k] in l2, so
sqrt(d) times that in l1, costs sqrt(d) (state Phi(k) + fresh c_k [used]) / b_k of pure epsilon.

Phi is linear in the uses of the record, so the whole budget is a sum of prices, one per step at
which it is used:

    q(k) = sum_r state_r / b_r(k) + l_k q(k+1)               (backward; 0 after the last message)
    w(l) = step_l c_l q(l+1) + c_l sum_r fresh_r / b_r(l)
    epsilon = sqrt(d) max_pattern sum_{l in pattern} w(l)

The total variation distance that a ternary quantizer leaves (mechanisms/ternary.py) has the same
form, with delta in the place of epsilon.

Gaussian noise of standard deviation sigma costs zero-concentrated privacy rho = max_pattern sum_k
Phi(k)^2 / 2 sigma_k^2, which is not additive in the uses and is found by running Phi forward for
each pattern.

"Steps" are counted from 0 and a horizon of K covers the messages 0, ..., K-1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.account import Assumption as Assumption
from hearsay.schedules import Constant, Schedule, nonnegative, schedule


@dataclass(frozen=True)
class Recursion:
    """The coefficients above: a_k = 1 - leak_k, step_k, c_k = exposure_k and [mu, L].

    `least`, where given: the leak of a step may be anything between `least` and `leak`, as
    circumstances have it (neighbours that are not heard). l_k is the larger of two absolute values
    of affine functions of the leak, so it is convex in it, and its largest value lies at one of
    the two ends.
    """

    leak: Schedule
    step: Schedule
    exposure: Schedule
    curvature: tuple[float, float]
    least: Schedule | None = None

    def __post_init__(self) -> None:
        require.settle(
            self,
            leak=schedule,
            step=nonnegative,
            exposure=nonnegative,
            least=require.optional(schedule),
        )
        require.settle(self, curvature=require.interval)

    def contraction(self, k: np.ndarray) -> np.ndarray:
        """l_k."""
        ends = [self.leak] if self.least is None else [self.leak, self.least]
        found = [
            np.abs(1.0 - leak(k) - self.step(k) * curved)
            for leak in ends
            for curved in self.curvature
        ]
        return np.maximum.reduce(found)

    def coefficients(self, horizon: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(l_k, step_k c_k, c_k) for k = 0 .. horizon-1."""
        k = np.arange(horizon)
        exposure = self.exposure(k)
        return self.contraction(k), self.step(k) * exposure, exposure


@dataclass(frozen=True)
class Release:
    """One message field: its value moves by at most state * Phi(k) + fresh * c_k [used at k] in l2.

    Args:
      name: of the message field, or of what is seen in the next message (a noisy gradient).
      scale: of its noise.
      state: what it carries of the private state.
      fresh: what it carries of the step's own gradient.
    """

    name: str
    scale: Schedule
    state: float = 1.0
    fresh: float = 0.0
    delay: int = 0

    def __post_init__(self) -> None:
        require.settle(
            self,
            scale=nonnegative,
            state=require.nonnegative_or_infinite,
            fresh=require.nonnegative_or_infinite,
            delay=require.natural,
        )
        if self.delay > 1:
            require.fail("delay", "0 or 1", self.delay)


# The leak of an algorithm whose next state forgets the private one: a_k = 0.
MEMORYLESS = Constant(1.0)


def forward(contraction: np.ndarray, jump: np.ndarray) -> np.ndarray:
    """Phi(0..K) of Phi(k+1) = l_k Phi(k) + jump_k, Phi(0) = 0."""
    return _recurrence(contraction, jump, 0.0)


def backward(contraction: np.ndarray, source: np.ndarray, terminal: float) -> np.ndarray:
    """q(0..K) of q(k) = source_k + l_k q(k+1), q(K) = terminal."""
    return _recurrence(contraction[::-1], source[::-1], terminal)[::-1]


def _recurrence(factor: np.ndarray, source: np.ndarray, start: float) -> np.ndarray:
    """x(0..K) of x(k+1) = factor_k x(k) + source_k, in K / 512 + 512 vector operations instead of K
    scalar ones.

    All blocks of 512 steps run side by side from x = 0, together with the product of their factors;
    one pass over the blocks joins them.
    """
    steps = len(factor)
    if steps <= 4096:
        values, x = [start], start  # Python floats: they overflow to infinity without a warning
        for f, s in zip(factor.tolist(), source.tolist(), strict=True):
            x = f * x + s
            values.append(x)
        return np.array(values)
    width = 512
    blocks = -(-steps // width)
    pad = blocks * width - steps
    factors = np.concatenate([factor, np.ones(pad)]).reshape(blocks, width)
    sources = np.concatenate([source, np.zeros(pad)]).reshape(blocks, width)
    alone, gain = np.zeros((blocks, width + 1)), np.ones((blocks, width + 1))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for j in range(width):
            alone[:, j + 1] = factors[:, j] * alone[:, j] + sources[:, j]
            gain[:, j + 1] = factors[:, j] * gain[:, j]
        heads = np.empty(blocks + 1)
        heads[0] = start
        for b in range(blocks):
            heads[b + 1] = alone[b, -1] + gain[b, -1] * heads[b]
        joined = alone[:, :-1] + gain[:, :-1] * heads[:-1, None]
    return np.append(joined.ravel(), heads[-1])[: steps + 1]

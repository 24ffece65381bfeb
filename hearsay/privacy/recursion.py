"""One recursion for every state-perturbation algorithm, and the prices that make it additive.

Fix the transcript. The agent's private state is then a deterministic function of its data,

    s(k+1) = a_k s(k) - step_k G_k(s(k)) + (terms that depend on the transcript only),
    a_k = 1 - leak_k,

with G_k the mean gradient of step k's batch. Replacing one record moves G_k by at most c_k (the
exposure) at a fixed point when the record is in the batch, and by nothing otherwise. If the
Hessians of the batch loss have their eigenvalues in the curvature interval [mu, L], the l2 distance
Phi of the two states obeys

    Phi(k+1) <= l_k Phi(k) + step_k c_k [used at k],
    l_k = max(|a_k - step_k mu|, |a_k - step_k L|),    Phi(0) = 0

because a mean-value Hessian H maps the difference by a_k I - step_k H, whose eigenvalues lie
between those two ends. A projection onto a convex set only shrinks Phi. A release with Laplace
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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms.convert import OUTWARD as OUTWARD
from hearsay.privacy.participation import Every, Participation
from hearsay.schedules import Constant, Schedule, nonnegative, schedule


@dataclass(frozen=True)
class Assumption:
    """What a certificate rests on.

    enforced: the code makes it so; derived: proved from the model; declared: the user says so.
    """

    kind: str
    text: str


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
    """One message field: its value moves by at most state * Phi(k) + fresh * c_k
    [used at k] in l2.

    delay: 1 where what step k does, and the noise on it, shows in message k + 1 only. It is counted
    with step k all the same.
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


@dataclass(frozen=True)
class Account:
    """All that the privacy engine needs to know of one agent's messages."""

    recursion: Recursion
    releases: tuple[Release, ...]
    pattern: Participation
    dimension: int
    mechanism: str = "laplace"
    basis: str = "curvature interval"
    assumptions: tuple[Assumption, ...] = ()
    void: str = ""  # why there is no budget, where there is none whatever the noise

    def __post_init__(self) -> None:
        require.settle(self, dimension=require.count)
        if not self.void and not float(self.recursion.exposure(0)) > 0:
            # A record that moves nothing would cost nothing: no sensitivity is zero, so something
            # was lost on the way here.
            require.fail("exposure", "positive at step 0", float(self.recursion.exposure(0)))

    def with_noise_scaled(self, factor: float) -> Account:
        return replace(
            self, releases=tuple(replace(r, scale=r.scale.scaled(factor)) for r in self.releases)
        )


def prices(account: Account, horizon: int, terminal: float = 0.0) -> np.ndarray:
    """w(l) for l = 0 .. horizon-1, times sqrt(d).

    `terminal` stands for q(horizon), what later messages cost.
    """
    horizon, terminal = (
        require.natural("horizon", horizon),
        require.nonnegative_or_infinite("terminal", terminal),
    )
    k = np.arange(horizon)
    contraction, jump, exposure = account.recursion.coefficients(horizon)
    through, fresh = np.zeros(horizon), np.zeros(horizon)
    for release in account.releases:
        inverse = _inverse(release.scale(k))
        through += release.state * inverse if release.state else 0.0
        fresh += release.fresh * inverse if release.fresh else 0.0
    ahead = backward(contraction, through, terminal)[1:]
    with np.errstate(over="ignore", invalid="ignore"):
        out = np.where(jump == 0, 0.0, jump * ahead) + np.where(
            exposure == 0, 0.0, exposure * fresh
        )
        return np.sqrt(account.dimension) * out


def spent(account: Account, horizon: int) -> np.ndarray:
    """The budget used after each message: pure epsilon (Laplace) or rho (Gaussian),
    shape (horizon,), never decreasing.
    """
    horizon = require.natural("horizon", horizon)
    if account.void:
        return np.full(horizon, np.inf)
    if isinstance(account.pattern, Every):
        return np.cumsum(_all_uses(account, horizon)) * OUTWARD
    total, curve = np.zeros(account.pattern.candidates(horizon)), np.zeros(horizon)
    for step, cost in enumerate(_pattern_costs(account, horizon)):
        with np.errstate(over="ignore"):
            total += cost
        curve[step] = total.max()
    return curve * OUTWARD


def spent_at(account: Account, horizons: Sequence[int]) -> np.ndarray:
    """`spent` after the given numbers of messages only:
    prices find each of them without following every pattern.
    """
    horizons = require.each(require.natural)("horizons", horizons)
    longest = max(horizons, default=0)
    if account.void:
        return np.where(np.asarray(horizons) > 0, np.inf, 0.0)
    many = len(horizons) > 50 and longest <= 5000
    if isinstance(account.pattern, Every) or account.mechanism == "gaussian" or many:
        curve = np.append(0.0, spent(account, longest))
        return curve[np.asarray(horizons, dtype=int)]
    return np.array([account.pattern.total(prices(account, h)) * OUTWARD for h in horizons])


def message_costs(account: Account, horizon: int) -> np.ndarray | None:
    """What each message costs under each candidate pattern, shape (candidate, step);
    None where that table would be too large.
    """
    horizon = require.natural("horizon", horizon)
    if isinstance(account.pattern, Every):
        return _all_uses(account, horizon)[None, :]
    if horizon * account.pattern.candidates(horizon) > 2**24:
        return None
    return np.stack(list(_pattern_costs(account, horizon)), axis=1)


def _all_uses(account: Account, horizon: int) -> np.ndarray:
    k = np.arange(horizon)
    contraction, jump, exposure = account.recursion.coefficients(horizon)
    phi = forward(contraction, jump)[:-1]
    return _cost(account, phi, exposure, [_inverse(r.scale(k)) for r in account.releases])


def _pattern_costs(account: Account, horizon: int) -> Iterator[np.ndarray]:
    """Per step, the cost of its message under each candidate pattern:
    Phi runs forward for all of them at once.
    """
    k = np.arange(horizon)
    contraction, jump, exposure = account.recursion.coefficients(horizon)
    inverse = [_inverse(r.scale(k)) for r in account.releases]
    phi = np.zeros(account.pattern.candidates(horizon))
    for step in range(horizon):
        used = account.pattern.used(step, len(phi))
        yield _cost(account, phi, exposure[step] * used, [inv[step] for inv in inverse])
        # A sensitivity that explodes is an infinite budget, not a warning.
        with np.errstate(over="ignore"):
            phi = contraction[step] * phi + jump[step] * used


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


def _inverse(scale: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", over="ignore"):
        return 1.0 / np.asarray(scale, dtype=np.float64)


def _cost(account: Account, phi: np.ndarray, exposure: np.ndarray, inverse: list) -> np.ndarray:
    """What one message costs in all, given Phi and what the record's use exposes:
    epsilon for Laplace noise, rho for Gaussian.
    """
    total = np.zeros(np.broadcast(phi, exposure).shape)
    with np.errstate(invalid="ignore", over="ignore"):
        for release, inv in zip(account.releases, inverse, strict=True):
            # A field that does not carry the state costs nothing for it, however far the
            # states are apart.
            moved = (release.state * phi if release.state else 0.0) + (
                release.fresh * exposure if release.fresh else 0.0
            )
            ratio = np.where(moved == 0, 0.0, moved * inv)
            total = total + (
                ratio**2 / 2
                if account.mechanism == "gaussian"
                else np.sqrt(account.dimension) * ratio
            )
    return total


MEMORYLESS = Constant(1.0)  # leak of an algorithm whose next state forgets the private one: a_k = 0

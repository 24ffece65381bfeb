"""What floating-point arithmetic adds to a sensitivity, and the bound on what is heard that
keeps it small.

The recursion of recursion.py is about real numbers. A process computes with float64:
every update is off by a rounding error that depends on the state, so two runs on neighbouring
data may move apart by it, and a neighbour can choose where it falls by sending huge numbers that
cancel later. So

1. everything that is heard (and the agent's own message, which is as public) is clipped
   to |value| <= H before it is used. That is post-processing of the transcript and costs nothing;
   no honest agent sends more, H = 2 R + 16 n G + 128 sqrt(K) b, with R the domain's reach, G a
   bound on gradients, b the largest noise scale. Where messages are passed on (averaging), H is
   what relays of such messages can reach (graphs/relaying.py). A relay itself is made of public
   numbers: its rounding is the same in both runs and costs nothing.
2. The rounding is counted. With u = 2^-53 all intermediate results of one update lie below

       M_k = R + max(1, coupling_k) (2 w + 1) (H + R) + step_k (G + D_k),
             w = all weights that the agent hears and hands out with,
             D_k = what trackers have drifted

   so a coordinate of the result is off by at most r_k = u (16 M_k + step_k P_k),
   P_k = (3 m_k + d + 64) (G + L R) with m_k records in the batch: an update, its projection
   and what goes into the noise take fewer than 16 operations beside the projection's norm, which
   adds 2 u (d + 16) R in l2; a mean of m_k gradients of d-term products (or two moments that are
   carried along) 3 m_k + d + 64, and L R is what a margin of size R can do to a gradient.
   Two runs: twice that. In l2

       Phi_e(k+1) <= l_k Phi_e(k) + off_k,  off_k = 2 (sqrt(d) r_k + 2 u (d + 16) R),  Phi_e(0) = 0,

   is added to Phi at every step, whichever steps use the record. A message whose noise is that of
   a step (gradient perturbation, `step_noise`) moves by off_k more; a tracker by
   2 sqrt(d) u (16 (G + D_k) + P_k) more.

A record in a secret batch moves others to other slots of it, where a compiled product may round a
margin otherwise: that is in d + 64 roundings of (G + L R). The gradient of a network has no L, and
such a margin may decide whether a unit fires. So a deployed agent with secret batches takes the
records of a network one at a time (`Loss.apart`): each gradient is then the same to the last bit in
every slot, at most a clip long, and only the order of the sum is another one.

A tracker's drift is z(k+1) = (1 - beta c) z(k) + beta (heard - c (g + noise)) with beta c < 1,
so |z(k+1)| <= |z(k)| + beta_k w H: D_k is the sum. It is the same in both runs, and rounds alike;
it only makes other numbers round more coarsely.

Where a step's noisy gradient is sent and the noise is correlated over time, off_k over the step
size moves row k of G, and goes into C e of rounding.py.

P4's update (x - z) / (eta tau) is off by u l^tau (16 (R + tau eta G) / eta + P) per coordinate and
run, in every round: it goes into C e of rounding.py.

All of it grows with the radius of the domain: a smaller one (problem's `radius`) costs less.
float32 would lose 2^29 times as much: deployed runs that are to be private use float64. Clipped
gradients of neural networks have margins of their own (problems/losses/per_record.py). Where no
bound on gradients is known (a declared change), G counts as 0 here and the certificate says so.

`Magnitudes` is what an algorithm declares of its update, `Float64` that and the facts of a run, as
they stand in a certificate's description.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms import Mechanism
from hearsay.privacy.recursion import Recursion, Release, forward
from hearsay.schedules import Schedule, nonnegative

_U = 2.0**-53
_OPERATIONS = 16
_UNHEARD_OF = 128.0  # noise of so many scales has a probability below e^-128


@dataclass(frozen=True, kw_only=True)
class Magnitudes:
    """How large the numbers of one agent's update can become, as the algorithm declares it. Nothing
    has a default that could count too little.

    Args:
      step: the step size that multiplies gradients.
      coupling: the largest factor of what is heard.
      tracking: the factor of what a tracker takes in; 0: there is no tracker.
      resolution: the largest distance by which a quantizer moves a message.
      step_noise: the scale that a step's noise has on the message after it, where a release has
        delay 1; None: every message field has noise of its own.
    """

    step: Schedule
    coupling: Schedule
    tracking: Schedule
    resolution: float
    step_noise: Schedule | None = None

    def __post_init__(self) -> None:
        require.settle(
            self,
            step=nonnegative,
            coupling=nonnegative,
            tracking=nonnegative,
            resolution=require.nonnegative,
            step_noise=require.optional(nonnegative),
        )


@dataclass(frozen=True)
class Float64:
    """What bounds the rounding of one agent's arithmetic in a run.

    Args:
      magnitudes: what the algorithm declares.
      heard: H, to which everything that is heard is clipped.
      reach: R, no model is larger in any coordinate.
      gradient: G, no mean gradient is; 0 where no bound is known.
      curvature: of the loss.
      weight: w, of all that the agent hears and hands out.
      batch: the records of a step, where the agent has as many.
      held: the records that it has.
    """

    magnitudes: Magnitudes
    heard: float
    reach: float
    gradient: float
    curvature: tuple[float, float]
    weight: float
    batch: Schedule
    held: float

    def __post_init__(self) -> None:
        require.settle(
            self,
            heard=require.nonnegative_or_infinite,
            reach=require.positive_or_infinite,
            gradient=require.nonnegative_or_infinite,
            curvature=require.interval,
            weight=require.nonnegative,
            batch=nonnegative,
            held=require.positive_or_infinite,
        )

    @property
    def bend(self) -> float:
        """L R, where the loss has a curvature: how far a gradient moves when its margin is off by
        as much as it is large.
        """
        high = self.curvature[1]
        return abs(high) * self.reach if math.isfinite(high) else 0.0


def message_bound(
    reach: float, gradient: float, noise: float, resolution: float, agents: int, messages: int
) -> float:
    """H: no honest agent sends a model, gradient or tracker beyond it in so many messages.

    Args:
      reach: R.
      gradient: G, or R where no bound on gradients is known.
      noise: b, the largest scale of anybody's noise on a message.
      resolution: what a quantizer adds.
    """
    reach, gradient, noise, resolution = (
        require.nonnegative_or_infinite(name, value)
        for name, value in (
            ("reach", reach),
            ("gradient", gradient),
            ("noise", noise),
            ("resolution", resolution),
        )
    )
    agents, messages = require.count("agents", agents), require.natural("messages", messages)
    return (
        2 * reach + 16 * agents * gradient + _UNHEARD_OF * math.sqrt(messages) * noise + resolution
    )


def shifts(
    float64: Float64,
    recursion: Recursion,
    releases: Sequence[Release],
    mechanism: Mechanism,
    dimension: int,
    messages: int,
) -> np.ndarray:
    """Per message, what rounding adds to the shift over the noise scale:
    epsilon for Laplace noise, |shift| / sigma for Gaussian, delta for ternary.
    """
    messages, d = require.natural("messages", messages), require.count("dimension", dimension)
    k, known = np.arange(messages), float64.magnitudes
    step = known.step(k)
    off, tracker = _off(float64, d, k)
    phi = forward(recursion.contraction(k), off)[:-1]
    norm, found = mechanism.stretch(d), []
    for release in releases:
        with np.errstate(divide="ignore", invalid="ignore"):
            if not release.delay:
                moved = release.state * phi + (tracker if release.fresh else 0.0)
                found.append(norm * moved / release.scale(k))
                continue
            if known.step_noise is None:
                raise ValueError(
                    "magnitudes must tell the scale of its delayed noise where a release has a"
                    f" delay, got none for {release.name}"
                )
            own = known.step_noise(k)
            # A step of size 0 moves nothing that depends on a record, and needs no noise.
            moved = np.where((own == 0) & (step == 0), 0.0, off / own)
            found.append(norm * np.append(0.0, moved)[:-1])
    return mechanism.together(np.stack(found), axis=0)


def step_errors(float64: Float64, dimension: int, rounds: int) -> np.ndarray:
    """By how much, in l2, two runs' gradients of each step may differ because of rounding, where a
    step's noisy gradient is sent with the next message: off_k over the step size.
    """
    d, k = require.count("dimension", dimension), np.arange(require.count("rounds", rounds))
    return _off(float64, d, k)[0] / float64.magnitudes.step(k)


def _off(float64: Float64, d: int, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(off_k, the same of a tracker) at the steps k = 0, 1, ..."""
    gradient, known = float64.gradient, float64.magnitudes
    step, reach = known.step(k), float64.reach
    drift = np.append(0.0, np.cumsum(known.tracking(k) * float64.weight * float64.heard))[:-1]
    size = (
        reach
        + np.maximum(1.0, known.coupling(k)) * (2 * float64.weight + 1) * (float64.heard + reach)
        + step * (gradient + drift)
    )
    batch = np.minimum(float64.batch(k), float64.held)
    products = (3 * batch + d + 64) * (gradient + float64.bend)
    off = 2 * _U * (math.sqrt(d) * (_OPERATIONS * size + step * products) + 2 * (d + 16) * reach)
    tracker = 2 * math.sqrt(d) * _U * (_OPERATIONS * (gradient + drift) + products)
    return off, tracker


def update_error(float64: Float64, dimension: int) -> float:
    """By how much two runs' updates of one round may differ in a coordinate because of rounding,
    where a round takes several local steps (paper P4).
    """
    dimension = require.count("dimension", dimension)
    rate, tau = float(float64.magnitudes.step(0)), int(float64.batch(0))
    (low, high), gradient = float64.curvature, float64.gradient
    stretch = (
        max(1.0, abs(1 - rate * low), abs(1 - rate * high)) ** tau
        if math.isfinite(high)
        else 1.0 + tau
    )
    products = (dimension + 64) * (gradient + float64.bend)
    size = _OPERATIONS * (float64.reach + tau * rate * gradient) / rate
    return 2 * _U * stretch * (size + products)

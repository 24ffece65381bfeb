"""What a budget computed for ideal noise becomes when the noise lies on a lattice
(mechanisms/lattice*.py).

Everything sent is rounded to a grid g of at most 2^-36 of the noise scale, and two vectors move
apart by at most g in each number when both are rounded. With n = all numbers that an agent sends,
in all its messages together, the ideal budget grows to

    laplace     epsilon + n 2^-36                    each number adds g / b
    gaussian    (sqrt(2 rho) + sqrt(n) 2^-36)^2 / 2  all shifts over sigma are one vector of
                                                     norm sqrt(2 rho)
    ternary     delta + n 2^-52                      two probabilities, each off by 3 2^-55
                                                     (mechanisms/lattice.py)
    factorized  (sqrt(2 rho) + extra)^2 / 2          below

**Shifts that depend on the past.** Fix two neighbouring data sets. Given the messages so far,
the next is a lattice point plus noise under either, and the two points differ by a vector a (over
the scale of the noise) that those messages determine. All that is known is that the sum of |a|^2
is at most mu^2, whatever they are. Gaussian noise, continuous: add one more message that brings
the sum to mu^2 exactly. The log-likelihood ratio is then W - mu^2 / 2 with W = sum <a, z>, z
standard normal given the past, so that exp(i s W + s^2 sum |a|^2 / 2) is a martingale, E exp(i
s W) = exp(-s^2 mu^2 / 2), and W is N(0, mu^2): exactly the trade-off of one Gaussian mechanism
of that mu (Smith and Thakurta 2022). Discrete Gaussian noise: a shift by whole steps has Renyi
divergence alpha |a|^2 / 2 (Canonne, Kamath and Steinke 2020), and the same martingale with powers
of likelihood ratios gives zCDP rho = mu^2 / 2 (Feldman and Zrnic 2021).

**Factorized noise.** Round r sends N_r = [G_r / g_r] + [S_r / g_r] + eta_r, [.] the nearest whole
number, eta_r discrete Gaussian of scale |D_rr| V / g_r, and

    V xi_r = g_r eta_r / D_rr,        S_r = sum_{w < r} D_rw V xi_w  in float64.

Messages are a function of the N (they saturate, as lattice.py says), so let an adversary see the
N. They and the data determine all xi, one after the other. For two data sets let Delta = V xi' - V
xi, given the same N. Then g_r times the shift of round r is D_rr Delta_r (up to its sign), and
subtracting the two equations for N_r,

    sum_{w <= r} D_rw Delta_w = G_r - G'_r + e_r,   so   Delta = C (G - G') + C e,   C = D^-1,
    |e_r| in each number <= g_r (G rounded twice) + g_r (S rounded twice)
                            + the float64 errors of S_r and S'_r.

The sum of |a_r|^2 = |Delta_r|^2 / V^2 is at most mu'^2 with mu' = sqrt(2 rho) + sqrt(d) | |C|
e | / V: the first term is the ideal mechanism's, as saturating brings G and G' no further
apart. A row with m_r terms before the diagonal has a float64 error of at most (m_r + 4) 2^-53
sum_{w<r} |D_rw| max |V xi_w|, and with T = 16

    max |V xi_w| <= T V under the first data set,
        but for a probability of 2 exp(-T^2 / 2) < 2^-180 per number,
    max |V xi'_w| <= (T + mu') V under the second then, by induction over w,
    e_r / V <= |D_rr| 2^-36 (1 + [m_r > 0]) + (m_r + 4) 2^-53 (2 T + mu') sum_{w<r} |D_rw|.

That is linear in mu' and solved for it. Once a noise of the first process has passed T V, which
happens with probability n 2^-180 at most, let it go on with the messages of the second: that
process has the bound surely, and putting it in the place of the first costs n 2^-180 of delta,
which `curve_slack` has room for. The tree leaves out nodes that no prefix sum uses, so its D is
square too, with fewer rows of C than the ideal budget counts. That D is C^-1 to float64 precision
only is covered, as for the ideal budget, by the factor OUTWARD.

**Rounds with factors of their own.** Where round r sends a_r times that, a_r > 0 and public
(gradient perturbation sends F + a_r (G_r + noise), F a function of earlier messages, which takes
the part of a G_r that is the same under both data sets), N_r = [a_r G_r / g_r] + [a_r S_r / g_r] +
eta_r with g_r = grid(|D_rr| a_r V) and V xi_r = g_r eta_r / (a_r D_rr). Divide by a_r: g_r times
the shift of round r is a_r D_rr Delta_r, so that it is |Delta_r| / V scales again, and e_r is at
most 2 g_r / a_r <= 2^-35 |D_rr| V but for the float64 errors, as above. These are m_r - 1 sums,
one product D_rw xi_w, one product a_w D_ww, one quotient by it and one product a_r S_r (products
with g are exact: it is a power of two): m_r + 3 roundings, for which m_r + 4 are counted. So the
bound does not depend on a_r.

References: Smith and Thakurta, Fully adaptive composition for Gaussian differential privacy, 2022.
Feldman and Zrnic, Individual privacy accounting via a Renyi filter, NeurIPS 2021. Canonne, Kamath
and Steinke, The discrete Gaussian for differential privacy, NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms import convert
from hearsay.mechanisms.convert import OUTWARD
from hearsay.mechanisms.factorized.kinds import Factorization

# The grid is 2^-36 of the scale: that much epsilon per number, and values reach 2^24 scales.
GRID_BITS = 36
TERNARY_BITS = 53  # a ternary probability is a multiple of 2^-53
_TAIL, _TAIL_BITS = 16.0, 180  # noise beyond 16 scales has less than this probability, in bits
_UP = 1 + 2.0**-50  # more than the few float64 operations of a formula here can lose


def laplace(epsilon: float, numbers: int) -> float:
    """Pure epsilon of lattice Laplace noise, from that of ideal noise."""
    return (
        require.nonnegative_or_infinite("epsilon", epsilon) + _numbers(numbers) * 2.0**-GRID_BITS
    ) * _UP


def gaussian(rho: float, numbers: int) -> float:
    """rho of lattice Gaussian noise, independent in all numbers."""
    return (
        (
            math.sqrt(2 * require.nonnegative_or_infinite("rho", rho))
            + math.sqrt(_numbers(numbers)) * 2.0**-GRID_BITS
        )
        ** 2
        / 2
        * _UP
    )


def ternary(delta: float, numbers: int) -> float:
    """delta of the lattice ternary quantizer; 1 or more means no guarantee,
    as for the ideal one.
    """
    return (
        require.nonnegative_or_infinite("delta", delta)
        + _numbers(numbers) * 2.0 ** (1 - TERNARY_BITS)
    ) * _UP


def factorized(rho: float, factorization: Factorization, dimension: int) -> float:
    """rho of lattice factorized noise over all rounds of the factorization, d = `dimension` numbers
    each (but for a probability of n 2^-180).
    """
    require.instance(
        "factorization", factorization, Factorization, "one of mechanisms/factorized/kinds.py"
    )
    root = math.sqrt(require.count("dimension", dimension))
    diagonal, terms, others = factorization.rows()
    rounded = root * factorization.encoded(np.abs(diagonal) * 2.0**-GRID_BITS * (1 + (terms > 0)))
    floated = root * factorization.encoded((terms + 4) * 2.0**-53 * others)
    if not floated < 0.5:
        return math.inf
    mu = (
        math.sqrt(2 * require.nonnegative_or_infinite("rho", rho)) + rounded + 2 * _TAIL * floated
    ) / (1 - floated)
    reach = _TAIL + mu
    # Up to here float64 holds eta exactly, and S_r does not saturate (at 2^60 steps; a scale has
    # up to 2^37).
    if not (reach <= 2.0**16 and reach * float(np.max(others / np.abs(diagonal))) <= 2.0**23):
        return math.inf
    return mu**2 / 2 * OUTWARD


def curve_slack(coordinates: int, epsilon: float) -> float:
    """What a delta grows by that was computed for continuous noise (mechanisms/convert.py), when
    `coordinates` numbers in all are sent with lattice noise instead.

    Continuous noise on a rounded value, rounded again, is at least as private as the curve says.
    Its law differs from ours by at most 1 / 8t^2 <= 2^-75 in total variation, per number, t >= 2^36
    the scale in grid steps. Laplace: only the weight of 0 differs, 1 - exp(-a) against tanh(a),
    a = 1/2t, by at most a^2 / 2. Gaussian, density f: the weight of x differs from f(x) by the
    integral of (1/2 - |s|)^2 f''(x + s) / 2 over |s| < 1/2; summed over x at most 1/8 of the
    integral of |f''|, which is 0.97 / t^2 (and the f(x) add up to 1 but for 3 exp(-2 pi^2 t^2)).
    Messages come one after the other, and given the past each is such a number, so the distances T
    add up, for factorized noise too. A distance of T to the private mechanism costs (1 + e^epsilon)
    T of delta. The n 2^-180 of factorized noise fit into the 3 % between 0.97 and 1.
    """
    epsilon = require.nonnegative("epsilon", epsilon)
    return (
        convert.grown(epsilon)
        * require.count("coordinates", coordinates)
        * 2.0 ** (-3 - 2 * GRID_BITS)
    )


def gaussian_epsilon(rho: float, delta: float, numbers: int) -> float:
    """epsilon at delta for the rho that `gaussian` or `factorized` returned:
    by the exact curve of continuous noise, less `curve_slack`, or by zCDP alone.
    """
    rho, delta, numbers = (
        require.nonnegative_or_infinite("rho", rho),
        require.fraction("delta", delta),
        _numbers(numbers),
    )
    spare = delta - numbers * 2.0**-_TAIL_BITS
    if not (math.isfinite(rho) and spare > 0):
        return math.inf
    plain = (rho + 2 * math.sqrt(rho * math.log(1 / spare))) * _UP
    return with_slack(lambda left: convert.gaussian_epsilon(rho, left), delta, numbers, plain)


def laplace_epsilon(parameters: np.ndarray, delta: float, numbers: int) -> float:
    """epsilon at delta for messages of lattice Laplace noise with ideal parameters Delta_k / b_k,
    shape (pattern, message), `numbers` numbers in each message.
    """
    delta, numbers = require.fraction("delta", delta), _numbers(numbers)
    rounded = (
        np.atleast_2d(require.array("parameters", parameters)) + numbers * 2.0**-GRID_BITS
    ) * _UP
    pure = float(np.sum(rounded, axis=1).max(initial=0.0)) * OUTWARD
    if not math.isfinite(pure):
        return math.inf
    return with_slack(
        lambda left: convert.laplace_epsilon(rounded, left), delta, rounded.shape[1] * numbers, pure
    )


def with_slack(
    curve: Callable[[float], float],
    delta: float,
    numbers: int,
    otherwise: float,
    distance: float = 0.0,
) -> float:
    """The smaller of `otherwise` and a true epsilon from the curve of continuous noise.

    Put a share of delta aside for the slack. The curve holds at the epsilon that it gives for the
    rest, where the share is large enough for the slack at that very epsilon.

    Args:
      curve: from a delta to an epsilon.
      delta: of the certificate.
      numbers: how many numbers are sent.
      otherwise: an epsilon that holds anyhow.
      distance: in total variation, between the messages and those that the curve is about.
    """
    delta = require.fraction("delta", delta)
    distance = require.nonnegative("distance", distance)
    otherwise, numbers = require.nonnegative_or_infinite("otherwise", otherwise), _numbers(numbers)
    for share in (1e-6, 1e-3, 0.5) if distance == 0 else (1e-6, 1e-3, 1e-2, 0.1, 0.5):
        epsilon = curve(delta * (1 - share))
        if not math.isfinite(epsilon):
            break
        apart = convert.grown(epsilon) * distance if distance else 0.0
        slack = curve_slack(numbers, epsilon) if numbers else 0.0
        if slack + apart <= delta * share * (1 - 1e-9):
            return min(epsilon, otherwise)
    return otherwise


def _numbers(numbers: int) -> int:
    return require.count("numbers", numbers, least=0)

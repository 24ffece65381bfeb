"""Paper P2 in plain numbers: the constants of Lemma 1, Assumption 5 and Appendix A, and the
exponents of Assumption 4 and Theorems 2-5.

L_1 = diag(R 1) - R and L_2 = diag(1'C) - C; v_1'L_1 = 0 and L_2 v_2 = 0, both summing to n;
W_1 = I - 1 v_1'/n and W_2 = I - v_2 1'/n.

The paper prints spectral radii where its proofs use Euclidean norms. The two agree on balanced
graphs only, and Theorem 3 is false with the radii: 20 agents in a line diverge within the printed
Assumption 5 (tests/algorithms/theory/test_gradient_tracking.py). `constants` gives what the proofs
need, `printed_constants` what is printed:

    rho_W1, rho_W2         |W_i| = |v_i| / sqrt(n)
                           printed: 1, as W_i is a projection
    rho_L1, rho_L2         |L_i|
                           printed: the largest |eigenvalue|
    1 - alpha r_L1   (35)  largest |(I - alpha L_1) z| / |z| over v_1'z = 0
                           printed: radius of I - alpha L_1 - 1 v_1'/n
    1 - beta r_L2    (50)  largest |(I - beta L_2) z| / |z| over 1'z = 0
                           printed: radius of I - beta L_2 - v_2 1'/n

`deficits` is I - A_K. Two entries of A_K differ from what (54)-(57) and the PL inequality give: A31
has n for 2n, and A33 has 3 (v_1'v_2)^2 gamma^2 L / 2n^2 for 3 (v_1'v_2)^2 gamma^2 L mu / n^2.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse

from hearsay import _validate as require
from hearsay.algorithms.theory.exponents import exact
from hearsay.algorithms.theory.onset import first_step
from hearsay.graphs import Graph


class Constants(NamedTuple):
    """n, |v_1|, |v_2|, v_1'v_2, and r_L, rho_W, rho_L of states (1) and trackers (2)."""

    agents: int
    v1: float
    v2: float
    overlap: float
    r1: float
    r2: float
    w1: float
    w2: float
    l1: float
    l2: float

    @property
    def contract(self) -> bool:
        """Both r above 0: without it there is no A_K."""
        return min(self.r1, self.r2) > 0


class Steps(NamedTuple):
    """alpha, beta and gamma."""

    coupling: float
    tracking: float
    step: float


def laplacians(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """L_1 and L_2."""
    states, trackers = graph.weights.toarray(), graph.pushed.toarray()
    return np.diag(states.sum(axis=1)) - states, np.diag(trackers.sum(axis=0)) - trackers


def stationary(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """v_1 and v_2 (Lemma 1): positive at the roots of R and of C', and 0 elsewhere."""
    first, second = laplacians(graph)
    roots = graph.roots()
    return _null(first.T, sorted(roots[0])), _null(second, sorted(roots[1]))


def _null(matrix: np.ndarray, roots: list[int]) -> np.ndarray:
    """The null vector with sum n. Roots hear (or hand out to) roots only, so that their block has
    it; its rows sum to 0, so that one is superfluous.
    """
    block = matrix[np.ix_(roots, roots)]
    block[0] = 1.0
    vector = np.zeros(len(matrix))
    vector[roots] = np.linalg.solve(block, np.eye(len(roots))[0] * len(matrix))
    return vector


@require.plain_arguments
def constants(graph: Graph, coupling: float, tracking: float) -> Constants:
    """What makes (35), (50) and the bounds with rho true.

    Where r is 0 or less the Euclidean norm does not contract, and the lemmas say nothing.
    """
    (v1, v2), (first, second) = stationary(graph), laplacians(graph)
    n = graph.agents
    return Constants(
        n, float(np.linalg.norm(v1)), float(np.linalg.norm(v2)), float(v1 @ v2),
        r1=_forgets(first, v1, coupling), r2=_forgets(second, np.ones(n), tracking),
        w1=float(np.linalg.norm(v1)) / math.sqrt(n), w2=float(np.linalg.norm(v2)) / math.sqrt(n),
        l1=float(np.linalg.norm(first, 2)), l2=float(np.linalg.norm(second, 2)),
    )  # fmt: skip


def _forgets(laplacian: np.ndarray, normal: np.ndarray, step: float) -> float:
    """r with |z - step L z| <= (1 - step r) |z| wherever normal'z = 0; for step 0 its limit."""
    basis = linalg.null_space(normal[None])
    moved = laplacian @ basis
    least = np.linalg.eigvalsh(basis.T @ moved + moved.T @ basis - step * moved.T @ moved)[0]
    return _root(float(least), step, laplacian)


def _root(least: float, step: float, laplacian: np.ndarray) -> float:
    """r with (1 - step r)^2 = 1 - step least, without the loss of 1 - sqrt(1 - ...);
    0 where it is rounding.
    """
    if abs(least) < 1e-13 * np.abs(laplacian).max():
        return 0.0
    return least / (1 + math.sqrt(max(0.0, 1 - step * least)))


@require.plain_arguments
def printed_constants(graph: Graph, coupling: float, tracking: float) -> Constants:
    """The constants as the paper defines them."""
    one, two = laplacians(graph)
    first, second = _eigenvalues(one), _eigenvalues(two)
    return constants(graph, 0.0, 0.0)._replace(
        r1=_root(float(np.min(2 * first.real - coupling * np.abs(first) ** 2)), coupling, one),
        r2=_root(float(np.min(2 * second.real - tracking * np.abs(second) ** 2)), tracking, two),
        w1=1.0, w2=1.0, l1=float(np.abs(first).max()), l2=float(np.abs(second).max()),
    )  # fmt: skip


def _eigenvalues(laplacian: np.ndarray) -> np.ndarray:
    """All but the one that is 0, each strongly connected part by itself:
    for a line the whole matrix is one Jordan block, which no solver resolves.
    """
    parts, label = sparse.csgraph.connected_components(
        sparse.csr_array(laplacian), connection="strong"
    )
    members = [np.flatnonzero(label == part) for part in range(parts)]
    values = np.concatenate([np.linalg.eigvals(laplacian[np.ix_(m, m)]) for m in members])
    return np.delete(values, np.argmin(np.abs(values)))


@require.plain_arguments
def deficits(c: Constants, s: Steps, mu: float, smooth: float, printed: bool = False) -> np.ndarray:
    """I - A_K of Appendix A: 1 minus a number close to 1 would lose what is asked for.

    Needs r above 0.
    """
    n, alpha, beta, gamma = c.agents, *s
    states = (1 + c.r1 * alpha) * (gamma * c.w1) ** 2 / (c.r1 * alpha)
    trackers = (1 + c.r2 * beta) * c.w2**2 / (c.r2 * beta)
    pace, heard = c.overlap * gamma / n, (c.v2 * smooth) ** 2
    curved = 1.5 * pace**2 * smooth if printed else 3 * pace**2 * smooth * mu
    return np.array(
        [
            [c.r1 * alpha - 4 * states * heard / n, -2 * states, -8 * states * heard / smooth],
            [
                -trackers * (6 * (alpha * c.l1) ** 2 + 12 * heard * gamma**2 / n) * smooth**2,
                c.r2 * beta - 6 * trackers * (gamma * smooth) ** 2,
                -24 * trackers * heard * gamma**2 * smooth,
            ],
            [
                -pace * smooth**2 * ((1 if printed else 2) + 3 * pace * smooth) / (2 * n),
                -(2 + 3 * pace * smooth) * c.v1**2 * gamma / (2 * n * c.overlap),
                pace * mu - curved,
            ],
        ]
    )


def gap(matrix: np.ndarray) -> float:
    """1 - rho(A_K), from I - A_K: A_K is nonnegative, so that its largest eigenvalue
    is its spectral radius.
    """
    return float(np.linalg.eigvals(matrix).real.min())


def contracts(matrix: np.ndarray) -> bool:
    """rho(A_K) < 1, however small the steps:
    I - A_K has a positive diagonal that outweighs the rest.
    """
    diagonal = np.diag(matrix)
    if not np.all(diagonal > 0):
        return False
    return float(np.abs(np.linalg.eigvals(np.eye(3) - matrix / diagonal[:, None])).max()) < 1


@require.plain_arguments
def descent(matrix: np.ndarray, c: Constants, s: Steps, smooth: float) -> tuple[float, float]:
    """(83): what disagreement costs, c'(I - M)^-1 b, and what a step gains;
    Theorem 1 under (S2) needs the first below the second.
    """
    pace = c.overlap * s.step / c.agents
    gain = pace / 2 - 1.5 * pace**2 * smooth
    part = matrix[:2, :2]
    if min(part[0, 0], part[1, 1], float(np.linalg.det(part))) <= 0:
        return math.inf, gain
    return float(matrix[2, :2] @ np.linalg.solve(part, matrix[:2, 2])) / (2 * smooth), gain


@require.plain_arguments
def coupling_limit(c: Constants, tracking: float) -> float:
    """Assumption 5: the third bound on alpha."""
    return (
        math.sqrt(330 * c.agents)
        * c.overlap
        * c.r2
        * tracking
        / (66 * c.agents * c.v1 * c.w2 * c.l1)
    )


@require.plain_arguments
def step_limits(c: Constants, mu: float, smooth: float) -> tuple[float, float]:
    """Assumption 5: Q_1 and Q_2 (with sqrt(n) r_L1, as the proof of (84) has it).

    Both contain mu, which Theorem 1 says it does without.
    """
    mu = max(0.0, mu)
    n, both, curved = c.agents, c.v1 * c.v2, mu / (16 * smooth**2 + 3 * mu)
    first = (
        c.r1
        / (c.w1 * c.v2 * smooth)
        * math.sqrt(n)
        * min(1 / 8, math.sqrt(6) / 24, math.sqrt(curved) / 2)
    )
    second = (
        math.sqrt(2) / 6,
        c.r1 / (24 * c.w1 * c.l1),
        math.sqrt(2 * n * c.overlap**3) / (6 * both),
        c.overlap * c.r1 / (36 * both) * math.sqrt(6 / (4 * (c.w1 * c.l1) ** 2 + c.r1**2)),
        math.sqrt(c.overlap / (6 * n)),
        c.overlap / (66 * both) * math.sqrt(660 * curved),
    )
    return first, c.r2 / (c.w2 * smooth) * min(second)


Exponents = tuple[float, float, float, float]  # p_alpha, p_beta, p_gamma, p_m
NoiseExponents = tuple[float, float]  # p_zeta, p_eta


@require.plain_arguments
def s1_steps(horizon: float, a: Exponents, p: Exponents) -> Steps:
    return Steps._make(
        scale / (horizon + 1) ** power for scale, power in zip(a[:3], p[:3], strict=True)
    )


def s1_conditions(p: Exponents, noise: NoiseExponents) -> dict[str, tuple[float, float, bool]]:
    """Assumption 4's conditions on exponents:
    left, right, and whether left must be strictly below.
    """
    alpha, beta, gamma, size = p
    zeta, eta = noise
    return {
        "p_beta above 1/2": (0.5, beta, True),
        "p_beta below p_alpha": (beta, alpha, True),
        "p_alpha below p_gamma": (alpha, gamma, True),
        "p_gamma below 1": (gamma, 1.0, True),
        "2 p_gamma - p_alpha": (1.0, exact(2 * gamma - alpha), False),
        "2 p_alpha - 2 p_zeta - p_beta": (1.0, exact(2 * alpha - 2 * zeta - beta), False),
        "2 p_alpha - p_beta": (1.0, exact(2 * alpha - beta), False),
        "2 p_beta - 2 p_eta": (1.0, exact(2 * beta - 2 * eta), False),
        "p_m - p_beta": (1.0, exact(size - beta), False),
    }


def s1_rate(p: Exponents, noise: NoiseExponents) -> float:
    """Theorem 2: E |grad F|^2 is O(K^-rate).

    The proof asks for 0 < p_beta < p_alpha < p_gamma < 1 and a rate above 0, no more.
    """
    alpha, beta, gamma, size = p
    zeta, eta = noise
    theta = min(size - beta, 2 * alpha - max(0.0, 2 * zeta) - beta, 2 * beta - max(0.0, 2 * eta))
    return exact(theta - max(alpha, beta, gamma))


def s1_budget(p: Exponents, noise: NoiseExponents) -> tuple[float, float]:
    """Theorem 4: the paper's budget, of trackers and of states, is O(ln(K+2) / (K+1)^q) with these
    q (ln for a noise exponent of 1 only).
    """
    alpha, beta, gamma, size = p
    zeta, eta = noise
    states = size + min(0.0, gamma - alpha - beta) - max(0.0, 1 - zeta)
    return exact(size - beta - max(0.0, 1 - eta)), exact(states)


@require.plain_arguments
def first_horizon(a: Exponents, p: Exponents, graph: Graph, mu: float, smooth: float) -> float:
    """K_0 of (88), with rho(A_K) < 1 for 1 - omega_K: infinite where no float reaches it.

    Uses r(alpha) >= r(0) - alpha |L|^2 / 2.
    """
    c = constants(graph, 0.0, 0.0)
    if not c.contract or mu <= 0 or not 0 < p[1] < p[0] < p[2]:
        return math.inf

    def holds(horizon: float) -> bool:
        s = s1_steps(horizon, a, p)
        at = c._replace(r1=c.r1 - s.coupling * c.l1**2 / 2, r2=c.r2 - s.tracking * c.l2**2 / 2)
        return at.contract and contracts(deficits(at, s, mu, smooth))

    return first_step(holds, 0.0)


@require.plain_arguments
def s2_oracle_exponent(growth: float, spare: float) -> float:
    """Theorem 3 for any schedule with the factor 1 - spare: error e takes
    K = ln(1/e) / -ln(1 - spare) steps of growth^K records each, which is e^-exponent ln(1/e)
    sampled gradients.
    """
    return math.log(growth) / -math.log1p(-spare) if spare > 0 else math.inf


@require.plain_arguments
def budget_peak_s1(q: float) -> float:
    """Remark 22: the t from which on ln(t+2) / (t+1)^q falls; infinite where it never does."""
    if q <= 0:
        return math.inf

    def falls(t: float) -> bool:
        return t + 1 <= q * (t + 2) * math.log(t + 2)

    low, high = 0.0, math.expm1(1 / q) if q > 0.002 else math.inf
    if falls(0.0) or math.isinf(high):
        return 0.0 if falls(0.0) else math.inf
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if falls(middle) else (middle, high)
    return high


@require.plain_arguments
def budget_peak_s2(ratio: float) -> float:
    """Remark 22: the t from which on t / ratio^t falls, with ratio = p_m times the smaller
    of p_zeta and p_eta.
    """
    return 1 / math.log(ratio) if ratio > 1 else math.inf

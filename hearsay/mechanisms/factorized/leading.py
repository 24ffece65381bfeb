"""What the first t rounds of a factorization cost, for every t: the leading block of C.

D = C^-1 is lower triangular, so the noise of the first t rounds is D[:t, :t] xi[:t], and the
inverse of a leading block is the leading block of the inverse: what has been sent after t rounds is
g[:t] + C[:t, :t]^-1 xi[:t], a Gaussian mechanism of sensitivity

    max over the P that lie within the first t rounds of |C[:t, :t] 1_P|

times S. (All rows of the first t columns of C would hold too, and count noise that nobody has seen
yet.) It never falls with t, because a longer block has all rows of a shorter one: a run may stop
as soon as a budget would be passed, and the sensitivity of all rounds is reached with the last one.
A pattern P has any two uses at least `separation` rounds apart, and as many as there is room for.
"""

from __future__ import annotations

import numpy as np

from hearsay.mechanisms.factorized import fit


def toeplitz(coefficients: np.ndarray, separation: int, counts: np.ndarray) -> np.ndarray:
    """Exact for a lower triangular Toeplitz C: its leading blocks are such matrices again, whose
    worst uses are 0, b, 2b, ... (kinds.py), and row r of C 1_P does not depend on t.

    Args:
      coefficients: the first column of C, which never rises and is never negative.
      separation: b.
      counts: the numbers of rounds t, 0 included.
    """
    sums = strided_sums(coefficients, separation)
    return np.sqrt(np.append(0.0, np.cumsum(sums**2)))[counts]


def strided_sums(coefficients: np.ndarray, separation: int) -> np.ndarray:
    """c_r + c_{r-b} + c_{r-2b} + ... for every r."""
    rounds = len(coefficients)
    padded = np.zeros((-(-rounds // separation), separation))
    padded.ravel()[:rounds] = coefficients
    return np.cumsum(padded, axis=0).ravel()[:rounds]


def dense(encoder: np.ndarray, separation: int, counts: np.ndarray) -> np.ndarray:
    """An upper bound, exact for one use: each use is charged its worst company, as for all rounds
    (Dense.sensitivity_repeated), with |C|'|C| in the place of |C'C|. That is the same where C has
    no negative entry, and it never falls with t where it has some.

    Args:
      encoder: C, lower triangular.
      separation: the least distance of two uses.
      counts: the numbers of rounds t, 0 included.
    """
    rows, rounds = np.abs(encoder), len(encoder)
    apart = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    together = (apart == 0) | (apart >= separation)
    gram, known, done = np.zeros((rounds, rounds)), np.zeros(rounds + 1), 0
    for t in np.unique(counts[counts > 0]).tolist():
        new = rows[done:t, :t]
        gram[:t, :t] += new.T @ new
        company = fit.heaviest_of_all(gram[:t, :t] * together[:t, :t], separation)
        known[t], done = np.sqrt(fit.heaviest_of_all(company, separation)), t
    return known[counts]


def tree(separation: int, counts: np.ndarray) -> np.ndarray:
    """The bound of Tree.sensitivity_repeated for a tree of t rounds: the nodes that are complete
    after t rounds are those of the tree that was planned for just so many.

    Args:
      separation: the least distance of two uses.
      counts: the numbers of rounds t, 0 included.
    """
    uses = -(-counts // separation)
    total = np.zeros(counts.shape)
    for height in range(int(np.max(counts, initial=0)).bit_length()):
        nodes = counts >> height
        most = np.maximum(1, np.minimum(uses, -(-(2**height) // separation)))
        full = np.minimum(nodes, uses // most)
        total += full * most**2 + (uses % most) ** 2 * (full < nodes)
    return np.sqrt(total)

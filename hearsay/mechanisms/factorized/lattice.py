"""Correlated Gaussian noise for deployment: later rounds take back earlier noise, on the lattice of
mechanisms/lattice.py.

For a factorization A = B C of the prefix sums and D = C^-1, lower triangular
(mechanisms/factorized/kinds.py), round r of paper P4 sends G_r + V (D xi)_r. Here it sends

    g_r N_r,    N_r = [G_r / g_r] + [S_r / g_r] + eta_r,               g_r = grid(|D_rr| V)
    S_r = sum_{w < r} D_rw V xi_w,                                     V xi_w = g_w eta_w / D_ww

with [.] the nearest whole number, summed in integers, and eta_r from the exact discrete Gaussian
of scale |D_rr| V. So the noise that is new in round r lies on the grid and hides the low bits of
everything else, and xi_r, what later rounds take back, is the noise that was really added. G is
saturated at 2^61 steps and so is what is sent, but xi is not: it is the noise that N carries, and N
is what the proof lets an adversary see. S is saturated at 2^60 steps (2^23 scales): that is part of
an event of probability 2^-180 per number, which the account allows for.

Where a round's message is multiplied by a public number a_r (gradient perturbation: the step size
that multiplies its gradient), G_r and S_r are multiplied by it, g_r = grid(|D_rr| a_r V), and
V xi_w = g_w eta_w / (a_w D_ww).

The proof and what all rounds cost together are in mechanisms/rounding.py (`factorized`): sqrt(2
rho) of the ideal noise grows by at most about 2^-35 sqrt(d) |C 1|. S_r is summed term by term in
float64, in a fixed order: for the same D it is the same on every machine, and after a restart.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms.factorized.kinds import Factorization
from hearsay.mechanisms.lattice import SATURATION, Key, discrete_gaussian, grid, quantize
from hearsay.schedules import Schedule

_KEPT_BYTES = 2**29  # past noise beyond this is drawn again each time it is needed


class FactorizedNoise:
    """The noise of one agent's messages, all of it determined by secrets of 32 bytes,
    `os.urandom(32)`, kept where the agent keeps its ledger.

    secret: a function that gives every round a secret of its own, the same whenever it is asked, or
    one secret for all rounds. With one of its own for every round, noise that was drawn again after
    an old ledger was put back is independent of what had left; with one for all, two messages of
    a round would differ by just the difference of their values. scale: V. size: how many numbers a
    message has. stream: which of the message's fields it is for; every field has noise of its own
    from the same secrets. weights: a_r, by which the message of each round is multiplied; None: 1.

    **One value per round.** The noise of a round is the same whenever it is asked for, because
    later rounds must take back just that noise, also after a crash. Two different values sent with
    the noise of the same round betray their difference exactly. An object refuses the second one,
    but it forgets with its process: whoever restarts must know from the ledger which rounds may
    have been sent, and send the bytes kept there again.

    **The secret is as sensitive as the data.** Whoever gets it can take all noise off all messages,
    also old ones. It never leaves the agent, is used for one run, and no two agents share
    it. (Another factorization, scale or size draws other noise from it, lest a change of plan
    cancel noise.)
    """

    def __init__(
        self,
        factorization: Factorization,
        secret: bytes | Callable[[int], bytes],
        scale: float,
        size: int,
        *,
        stream: int = 0,
        weights: Schedule | None = None,
        private: bool = True,
    ) -> None:
        require.instance(
            "factorization", factorization, Factorization, "one of mechanisms/factorized/kinds.py"
        )
        if not callable(secret):
            _require_secret(secret)
        self.factorization, self.scale = factorization, require.positive("scale", scale)
        self.size, self.private = require.count("size", size), require.flag("private", private)
        if not private:
            warnings.warn(
                "noise from a known secret is NOT PRIVATE: use os.urandom(32) for data that needs"
                " protection",
                stacklevel=2,
            )
        words = f"hearsay factorized noise {factorization!r} {self.scale.hex()} {self.size} "
        # Stream 0 is written without its number, as in runs that began before there were others.
        if require.count("stream", stream, least=0):
            words += f"stream {stream} "
        rounds = np.arange(factorization.rounds)
        self._weights = np.ones(len(rounds))
        if weights is not None:
            words += f"times {weights!r} "
            self._weights = np.asarray(weights(rounds), np.float64)
        self._plan = words.encode()
        self._secret = secret
        self._diagonal = factorization.rows().diagonal
        sizes = np.abs(self._diagonal) * self._weights
        for end in (sizes.min(), sizes.max()):
            # Refuses a scale that is too small or too large now rather than in a later round.
            grid(float(end) * self.scale)
        self._kept: dict[int, np.ndarray] = {}
        self._sent: dict[int, bytes] = {}

    def privatize(self, value: Any, round: int) -> np.ndarray:
        """What may leave the agent in that round, float64 multiples of a grid,
        in the shape of the value. Rounds may be asked for in any order.
        """
        round = require.count("round", round, least=0)
        if round >= self.factorization.rounds:
            require.fail(
                "round",
                f"below {self.factorization.rounds}, the rounds that noise is planned for",
                round,
            )
        step = self._grid(round)
        steps = quantize(value, step)
        if steps.size != self.size:
            require.fail("value", f"of {self.size} numbers", steps.size)
        self._only(round, steps)
        _, past, coefficients = self.factorization.row(round)
        back = np.zeros(self.size)
        for w, coefficient in zip(past.tolist(), coefficients.tolist(), strict=True):
            back += coefficient * self._past(w)
        back *= self._weights[round]
        back = np.clip(np.rint(back / step), -SATURATION / 2, SATURATION / 2).astype(np.int64)
        fresh = self._draw(round)  # |steps| + |back| + |fresh| <= 2^61 + 2^60 + 2^62: no overflow
        self._keep(round, fresh)
        total = steps + (back + fresh).reshape(steps.shape)
        return np.clip(total, -SATURATION, SATURATION) * step

    def _only(self, round: int, steps: np.ndarray) -> None:
        digest = hashlib.blake2b(steps.tobytes(), digest_size=32).digest()
        if self._sent.setdefault(round, digest) != digest:
            raise RuntimeError(
                f"round {round} has been used for another value: the same noise on two values"
                " betrays their difference"
            )

    def _grid(self, round: int) -> float:
        return grid(self._deviation(round))

    def _deviation(self, round: int) -> float:
        return abs(float(self._diagonal[round])) * float(self._weights[round]) * self.scale

    def _draw(self, round: int) -> np.ndarray:
        """eta, in grid steps."""
        secret = self._secret(round) if callable(self._secret) else self._secret
        _require_secret(secret)
        derived = hashlib.sha256(secret + self._plan).digest()
        key = Key(hashlib.sha256(derived + round.to_bytes(8, "little")).digest(), self.private)
        return discrete_gaussian(key, self._deviation(round) / self._grid(round), self.size)

    def _past(self, round: int) -> np.ndarray:
        """V xi."""
        known = self._kept.get(round)
        return self._keep(round, self._draw(round)) if known is None else known

    def _keep(self, round: int, fresh: np.ndarray) -> np.ndarray:
        noise = fresh * self._grid(round) / float(self._diagonal[round] * self._weights[round])
        if (len(self._kept) + 1) * noise.nbytes <= _KEPT_BYTES:
            self._kept[round] = noise
        return noise

    def __reduce__(self) -> Any:
        raise TypeError(
            "factorized noise cannot be copied or saved: the copy would not know which rounds were"
            " sent"
        )

    def __repr__(self) -> str:
        kind = "private" if self.private else "simulated, NOT PRIVATE"
        return (
            f"FactorizedNoise({self.factorization!r}, scale={self.scale!r}, size={self.size},"
            f" {kind})"
        )


def _require_secret(secret: Any) -> None:
    require.instance("secret", secret, bytes, "32 bytes such as os.urandom(32)")
    if len(secret) != 32:
        require.fail("secret", "32 bytes long", len(secret))

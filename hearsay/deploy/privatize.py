"""Where a deployed agent's noise comes from.

`Lattice` is the real thing: the algorithm's `prepare` gives the values that must not leave and the
scales of their noise; each is rounded to a grid and noised in whole numbers, from the operating
system's random numbers (mechanisms/lattice.py, mechanisms/factorized/lattice.py). Noise that is
correlated over rounds has a stream of its own for every field. No seed of anybody's enters. A value
whose scale is 0 is public by the algorithm's own account (the common starting point, coordinates
that are not sent) and goes as it is; one that the account counts with noise is refused without it.
Where agents share secrets the noise of every pair is added in the same whole numbers
(pair_noise.py, mechanisms/shared_lattice.py).

`Rehearsal` draws the simulator's noise and batches from the simulator's keys, so that a deployed
run can be held against a simulated one. Anybody who knows the seed can subtract the noise: it
protects nobody, and says so.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.base import Keys, Private
from hearsay.deploy.pair_noise import PairKeys, PairNoise
from hearsay.deploy.steps import Steps
from hearsay.mechanisms import lattice
from hearsay.mechanisms.factorized.lattice import FactorizedNoise
from hearsay.simulation import keys
from hearsay.simulation.program import Carry

REHEARSAL = (
    "NOT PRIVATE: noise from seed {seed} can be subtracted by anybody who knows it. Use"
    " --simulate-noise for tests only, never with real records."
)


class Lattice:
    """Exact noise from the operating system's random numbers.

    Args:
      steps: the agent's rounds.
      secrets: round by round, bring correlated noise back after a restart, because later rounds
        take it back; independent noise is never drawn twice.
      run: words that all agents of the run share, from which its public coins are drawn.
      pairs: the keys of what the agent shares with others, where the algorithm has secrets.
    """

    private = True

    def __init__(
        self,
        steps: Steps,
        secrets: dict[int, bytes],
        run: str = "",
        pairs: PairKeys | None = None,
    ) -> None:
        self._steps, self._key, self._secrets = steps, lattice.Key.fresh(), secrets
        algorithm = steps.algorithm
        # For what is random and not secret (who sleeps, which coordinates travel): two words for
        # jax's generator.
        words = jnp.asarray(np.frombuffer(os.urandom(8), np.uint32))
        coins = Keys(jax.random.wrap_key_data(words, impl="threefry2x32"))
        if "public" in algorithm.keys and (place := steps.keys(0).public) is not None:
            coins = coins._replace(public=place._replace(key=keys.public_key(run)))
        self._coins = coins.given
        self._streams: dict[str, FactorizedNoise] = {}
        self._releases = {r.name: r for r in algorithm.releases(steps.agent, (0.0, 0.0))}
        shared = algorithm.shared(steps.graph.agents) if algorithm.secrets is not None else None
        if (shared is None) != (pairs is None):
            require.fail(
                "pairs", "the keys of the secrets that the algorithm has, and only those", pairs
            )
        self._pairs: PairNoise | None = None
        if shared is not None and pairs is not None:
            self._pairs = PairNoise(algorithm, shared, steps.agent, pairs)

    def message(self, step: int, carry: Carry) -> tuple[Any, Carry]:
        """(what may leave, the state after it)."""
        fields, carry = self._steps.prepare(step, carry)
        noised = type(fields)(
            **{
                name: jnp.asarray(self._noised(step, name, field), self._steps.dtype)
                for name, field in fields._asdict().items()
            }
        )
        return self._steps.finish(step, noised, carry, self._coins)

    def coin(self, step: int) -> Any:
        """The public coin of that round, where weights follow from one."""
        return self._steps.coin(step, self._coins)

    def secret(self, step: int) -> bytes:
        """What the ledger must keep with that round's message."""
        return self._secrets.get(step, b"")

    def _draw(self, step: int) -> bytes:
        return self._secrets.setdefault(step, os.urandom(32))

    def _noised(self, step: int, name: str, field: Private) -> np.ndarray:
        value, scale = np.asarray(field.value, np.float64), np.asarray(field.scale, np.float64)
        if not np.all(scale >= 0):
            raise ValueError("the scale of the noise must be zero or positive")
        self._require_enough(step, name, scale)
        if not np.any(scale > 0):
            return value
        if self._steps.algorithm.factors is not None and self._pairs is None:
            row = step - self._steps.algorithm.delay
            return self._stream(step, name, scale, value.size).privatize(value, row)
        # A scale that was rounded to the run's precision may be slightly below the certified one.
        law, scale = self._steps.algorithm.law, scale * (1 + self._margin)
        if self._pairs is not None:
            return self._noised_shared(step, name, value, scale)
        if scale.ndim == 0:
            return law.lattice(value, float(scale), self._key)
        out = value.copy()
        for size in np.unique(scale[scale > 0]):
            here = scale == size
            out[here] = law.lattice(value[here], float(size), self._key)
        return out

    def _noised_shared(
        self, step: int, name: str, value: np.ndarray, scale: np.ndarray
    ) -> np.ndarray:
        """The same with what the agent shares with others. All coordinates get noise, as the other
        ends do not know which ones are sent; those of scale 0 go as they are.
        """
        assert self._pairs is not None
        sent = scale > 0
        sizes = np.unique(scale[sent])
        if len(sizes) > 1:
            require.fail(f"the scale of {name}", "the same in all coordinates with secrets", sizes)
        planned, grid, terms = self._pairs.of(step, name)
        own = float(sizes[0])
        if own > planned * (1 + 4 * self._margin):
            # What is shared, and the others' own noise, would be too little beside it.
            require.fail(
                f"the scale of {name} in round {step}",
                f"at most {planned!r}, to which the noise that agents share is in proportion",
                own,
            )
        own = max(own, planned)
        law = self._steps.algorithm.law
        noised = law.lattice_shared(value, own, grid, self._key, terms)
        return np.where(sent, noised, value)

    @property
    def _kind(self) -> str:
        return "" if self._steps.algorithm.factors is None else "correlated "

    @property
    def _margin(self) -> float:
        """By how much, relatively, a scale may be off in the run's precision."""
        return 8 * float(jnp.finfo(self._steps.dtype).eps)

    def _counted(self, step: int, name: str) -> float:
        """The scale that the account counts for that message. Noise of its own that an earlier step
        made (a release with a delay) is held to its account by audits.
        """
        release, algorithm = self._releases.get(name), self._steps.algorithm
        if release is None or step < release.delay:
            return 0.0
        if not release.delay:
            return float(release.scale(step))
        if algorithm.factors is None:
            return 0.0
        row = step - release.delay
        return float(algorithm.step_size(row)) * float(release.scale(row))

    def _require_enough(self, step: int, name: str, scale: np.ndarray) -> None:
        """A message with less noise than its account counts must not leave."""
        certified = self._counted(step, name)
        if not np.all(scale >= certified * (1 - self._margin)):
            raise ValueError(
                f"the scale of the {self._kind}noise of {name} must be at least the certified"
                f" {certified!r} in round {step}, got {float(np.min(scale))!r}"
            )

    def _stream(self, step: int, name: str, scale: np.ndarray, size: int) -> FactorizedNoise:
        """The noise of that field, of the scale that was certified: later rounds take it back, so
        that it has one scale for all of them, but for the public step size of each.
        """
        certified = self._counted(step, name)
        if not np.all(np.abs(scale - certified) <= self._margin * certified):
            raise ValueError(
                f"the scale of the correlated noise of {name} must be the certified"
                f" {certified!r} in every round, got {scale.tolist()!r:.80}"
            )
        if name not in self._streams:
            algorithm = self._steps.algorithm
            assert algorithm.factors is not None
            number, late = list(algorithm.channels).index(name), algorithm.delay
            level = float(self._releases[name].scale(0))
            # The ledger keeps a row's secret with the message that carries it. The step size that
            # multiplies a gradient was rounded to the run's precision.
            self._streams[name] = FactorizedNoise(
                algorithm.factors,
                lambda row: self._draw(row + late),
                level * (1 + self._margin) if late else level,
                size,
                stream=number,
                weights=algorithm.step_size if late else None,
            )
        return self._streams[name]


class Rehearsal:
    """The noise and the batches of `simulate` with that seed."""

    private = False

    def __init__(self, steps: Steps, seed: int) -> None:
        self._steps = steps
        steps.rehearsed(seed)
        self._key = steps.keys(seed).given
        self._constants = steps.algorithm.constants(steps.dtype)
        self._pairs = steps.pairs(seed)

    def secret(self, step: int) -> bytes:
        return b""

    def coin(self, step: int) -> Any:
        return self._steps.coin(step, self._key)

    def message(self, step: int, carry: Carry) -> tuple[Any, Carry]:
        return self._steps.rehearse(step, carry, self._key, self._constants, self._pairs)

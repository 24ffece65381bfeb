"""The way of noise through an algorithm: drawn without looking, used once, kept nowhere.

What a draw or a message follows from is asked of jax (simulation/scales.py, `independent`), so it
does not matter where numbers lie: a noise that is taken off again where it is large shows as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay.audit.contract import WIDTH, Broken, Subject, drawn, key, one_round, situation
from hearsay.base import Algorithm
from hearsay.simulation.scales import foreseen, independent

# Vectors of 64 independent numbers are this much alike with a probability below 1e-20.
_ALIKE, _MANY = 0.95, 64


def noise_path(one: Subject) -> str:
    """Noise is drawn without looking, used once, and kept nowhere."""
    algorithm = one.algorithm
    noises = [name for name in one_round(algorithm)._fields if name not in algorithm.coins]
    for wrong in (*_drawn_from(algorithm, noises), _repeated(algorithm), _finished(one, noises)):
        if wrong:
            raise Broken(wrong)
    state, batch, rate = situation(one)
    draws = one_round(algorithm)
    usual, _ = algorithm.send(draws, state, batch, rate)
    for name in noises:
        moved = draws._replace(**{name: getattr(draws, name) + 1.0})
        message, _ = algorithm.send(moved, state, batch, rate)
        for field in usual._fields:
            same = np.allclose(getattr(message, field), getattr(usual, field), rtol=0, atol=1e-12)
            if field != name and not same:
                raise Broken(
                    f"the noise of {name} must be in {name} only, and {field} shows it too"
                )
    return f"{len(noises)} draw(s) per message, each used once"


def _drawn_from(algorithm: Algorithm, noises: list[str]) -> Iterator[str]:
    """What draws follow from beside the agent's own key, in words."""
    own, params = key(0), jnp.zeros(WIDTH)
    for name in one_round(algorithm)._fields:

        def at(params: jax.Array, others: jax.Array = own, name: str = name) -> Any:
            return getattr(drawn(algorithm, own, others, params), name)

        def known(others: jax.Array, at: Any = at) -> Any:
            return at(params, others)

        if not independent(at, _two(params)):
            yield f"draw must not look at the model, and {name} does"
        if name in noises and not independent(known, _two(own)):
            yield (
                f"noise must be drawn from the agent's own key alone, and {name} follows from one"
                " that others have"
            )


def _repeated(algorithm: Algorithm) -> str:
    """Which noise is there twice, in words; "" where none is."""
    found: list[tuple[str, int, np.ndarray]] = []
    for seed in (0, 1):
        draws = drawn(algorithm, key(seed), key(0), jnp.zeros(_MANY))
        for name in draws._fields:
            if name not in algorithm.coins:
                values = np.asarray(getattr(draws, name), float)
                found += [(f"{name} of round {k}", seed, row) for k, row in enumerate(values)]
    related = algorithm.factors is not None
    if related:
        # Messages before the first row of it have none.
        found = [one for one in found if np.any(one[2] != 0)]
    for (a, one, x), (b, two, y) in combinations(found, 2):
        if related and one == two:
            continue
        if abs(np.corrcoef(x, y)[0, 1]) > _ALIKE:
            again = "" if one == two else " with another key"
            return f"noise must be drawn anew, and {a} is that of {b}{again}"
    return ""


def _finished(one: Subject, noises: list[str]) -> str:
    """What `finish` makes of more than the message with its noise, coins, and what anybody foresees
    of the state, in words; "" where it does not.
    """
    algorithm, (state, batch, rate) = one.algorithm, situation(one)
    draws, (fields, state) = one_round(algorithm), algorithm.prepare(state, batch, rate)
    noised = type(fields)(*(part.value for part in fields))
    leaves, structure = jax.tree.flatten(state)
    known = foreseen(algorithm, one.problem)

    def message(given: list) -> Any:
        mixed = [leaves[i] if i in known else leaf for i, leaf in enumerate(given)]
        return algorithm.finish(noised, draws, jax.tree.unflatten(structure, mixed))[0]

    def of_noise(given: dict) -> Any:
        return algorithm.finish(noised, draws._replace(**given), state)[0]

    def after(given: tuple[Any, dict]) -> Any:
        return algorithm.finish(given[0], draws._replace(**given[1]), state)[1]

    if not independent(message, _two(leaves)):
        return "finish must not use the state: nothing private may enter a message with its noise"
    noise = {name: getattr(draws, name) for name in noises}
    if not independent(of_noise, _two(noise)):
        return "finish must not use the draws of noise, only coins: noise could be taken off again"
    if not independent(after, _two((noised, noise))):
        return "the state must not keep the noise: finish carries it on"
    return ""


def _two(given: Any) -> Any:
    return jax.tree.map(lambda x: jnp.stack([x, x]), given)

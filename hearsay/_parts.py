"""The small types of the contract (base.py), and which fields of an algorithm are schedules."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import fields
from functools import cache, lru_cache
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import jax
import numpy as np

from hearsay import _validate as require
from hearsay.schedules import Constant, Schedule, nonnegative

# One schedule for all agents, or one for each. A field annotated with it is a noise scale.
Noise = Schedule | tuple[Schedule, ...]
# What the noise scales of two agents may be off a common proportion by, relatively: rounding.
PROPORTION = 1e-11


class State(NamedTuple):
    """What an agent keeps, private: here its model alone."""

    params: jax.Array


class Message(NamedTuple):
    """What an agent sends, here its model; also the draws of its noise, one per field."""

    params: Any


class Private(NamedTuple):
    """A message field before its noise: the value, which must not leave the agent,
    and the scale of the noise that lets it.
    """

    value: Any
    scale: Any


class Inbox(NamedTuple):
    """What an agent hears in one round: one entry per message field in each part."""

    total: Any
    own: Any


class Pairs(NamedTuple):
    """What an agent shares with each neighbour and with nobody else: one entry per slot, that is
    per edge of the agent (graphs/pairs.py).

    Args:
      key: the pair's key, the same at both ends.
      sign: 1 at the end with the smaller number, -1 at the other; 0 for a slot without an edge.
      ends: (slot, 2), the smaller and the larger agent.
    """

    key: Any
    sign: Any
    ends: Any


class Public(NamedTuple):
    """What everybody knows: a key that is the same for all agents, and the agent's own place.

    Args:
      key: of coins that all agents see alike.
      edges: (slot,), the numbers of the agent's edges; -1 for a slot without one.
      count: how many edges the graph has.
    """

    key: Any
    edges: Any
    count: Any


class Keys(NamedTuple):
    """Sources of one agent's randomness: all of a run, or those of one step.

    Kinds that an algorithm does not declare (`Algorithm.keys`) are None.

    Args:
      own: nobody else has it.
      pairs: one for each neighbour, which has it too.
      public: everybody has it.
    """

    own: Any
    pairs: Pairs | None = None
    public: Public | None = None

    @property
    def given(self) -> Any:
        """What `Algorithm.draw` is called with: the own key itself where there is no other."""
        return self.own if self.pairs is None and self.public is None else self

    def at(self, step: Any) -> Keys:
        """The keys of one step."""
        pairs, public = self.pairs, self.public
        if pairs is not None:
            pairs = pairs._replace(
                key=jax.vmap(jax.random.fold_in, in_axes=(0, None))(pairs.key, step)
            )
        if public is not None:
            public = public._replace(key=jax.random.fold_in(public.key, step))
        return Keys(jax.random.fold_in(self.own, step), pairs, public)


@cache
def schedule_fields(kind: type) -> tuple[str, ...]:
    """The fields that are annotated as schedules: what people write there is read as one, and a run
    sees them through `rates` only.
    """
    hints = get_type_hints(kind)
    return tuple(f.name for f in fields(kind) if any(map(_is_schedule, _parts(hints[f.name]))))


@cache
def noise_fields(kind: type) -> tuple[str, ...]:
    """Those of them that are noise scales: annotated `Noise`."""
    hints = get_type_hints(kind)
    return tuple(f.name for f in fields(kind) if tuple[Schedule, ...] in _parts(hints[f.name]))


def noise_rates(kind: type, rates: Any) -> dict[str, np.ndarray]:
    """Those of an algorithm's rates that are noise scales."""
    missing = set(noise_fields(kind)) - set(rates._fields)
    if missing:
        raise ValueError(
            f"rates of {kind.__name__} must hold its noise scales under the names of their fields,"
            f" got none for {', '.join(sorted(missing))}"
        )
    return {name: getattr(rates, name) for name in noise_fields(kind)}


def _parts(hint: Any) -> tuple:
    """The types that a union is made of."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _is_schedule(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Schedule)


@cache
def rates_type(kind: type) -> Any:
    return namedtuple("Rates", schedule_fields(kind))  # type: ignore[misc]


@require.plain_arguments
def per_agent_rates(law: Noise, steps: np.ndarray, agents: int) -> np.ndarray:
    """One schedule for all or one per agent, evaluated: (time, agent)."""
    if isinstance(law, tuple):
        known, place = distinct(law)
        return np.stack([s(steps) for s in known], axis=1)[:, place]
    return np.broadcast_to(law(steps)[:, None], (len(steps), agents))


def as_noise(name: str, value: Any) -> Noise:
    """One schedule or a tuple of them, from what people write; None means no noise at all."""
    if value is None:
        return Constant(0.0)
    if isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) == 1:
        # Of very many agents most have the very same one, which is looked at once.
        given = list(value)
        seen = {id(one): nonnegative(name, one) for one in {id(v): v for v in given}.values()}
        return tuple(seen[id(one)] for one in given)
    return nonnegative(name, value)


def distinct(values: tuple[Any, ...]) -> tuple[list[Any], np.ndarray]:
    """(the different ones among them in the order in which they come, the place of each there).

    Args:
      values: of any kind that can be compared.

    Example:
      >>> distinct(("a", "b", "a"))
      (['a', 'b'], array([0, 1, 0]))
    """
    # Agents often have the very same object, which is then compared once.
    objects = np.fromiter(map(id, values), np.int64, len(values))
    _, first, place = np.unique(objects, return_index=True, return_inverse=True)
    known: dict[Any, int] = {}
    for one in np.sort(first).tolist():
        known.setdefault(values[one], len(known))
    return [*known], np.array([known[values[one]] for one in first.tolist()])[place.ravel()]


@lru_cache(maxsize=256)
def relative_scales(name: str, law: Noise) -> tuple[float, ...]:
    """The agents' noise scales over that of agent 0, the same at all times; (1.0,) where all have
    the same schedule.
    """
    if not isinstance(law, tuple) or len(set(law)) == 1:
        return (1.0,)
    steps = np.unique(np.append(np.arange(64), np.geomspace(64, 1e6, 40).astype(int)))
    known, place = distinct(law)
    levels = np.stack([one(steps) for one in known])
    if not np.all(levels > 0):
        require.fail(name, "positive for every agent with secrets", "noise of scale 0")
    ratios = levels / levels[0]
    if not np.allclose(ratios, ratios[:, :1], rtol=PROPORTION, atol=0):
        require.fail(
            name,
            "in the same proportion at all times with secrets (one form, with a factor for each"
            " agent)",
            [str(one) for one in law[:3]],
        )
    return tuple(ratios[place, 0].tolist())

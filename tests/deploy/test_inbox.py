"""What a deployed agent hears is what the engine's exchange gives it, to the last bit on every
channel.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hearsay as hs
from hearsay.deploy.inbox import Listener, within
from hearsay.graphs.channels import channel, mixer
from hearsay.simulation import engine

CHANNELS = ("coupling", "mixing", "pushing", "pulling", "average")
AGENTS, DIMENSION, LIMIT = 4, 3, 8.0


class Message(NamedTuple):
    coupling: np.ndarray
    mixing: np.ndarray
    pushing: np.ndarray
    pulling: np.ndarray
    average: np.ndarray


# One field on each channel; one of them is a coin, which lies between 0 and 1.
ALGORITHM = SimpleNamespace(channels={name: name for name in Message._fields}, coins=("pulling",))
# Sums of a few eighths, and of products of them, are exact whatever the order: equal numbers have
# equal bits, and other ones do not come near them.
PULL = np.array([[0, 4, 1, 0], [2, 0, 1, 1], [0, 3, 0, 2], [1, 0, 5, 0]]) / 8
PUSH = np.array([[0, 1, 2, 0], [3, 0, 1, 1], [0, 1, 0, 4], [2, 0, 1, 0]]) / 8


def graph(pull: np.ndarray = PULL) -> hs.graphs.Graph:
    return hs.graphs.pair(hs.graphs.from_weights(pull), hs.graphs.from_weights(PUSH))


def messages(seed: int, exact: bool = True) -> Message:
    rng = np.random.default_rng(seed)
    shape = (len(CHANNELS), AGENTS, DIMENSION)
    return Message(*(rng.integers(-96, 97, shape) / 8 if exact else rng.normal(size=shape)))


def of(said: Message, agent: int) -> dict[str, np.ndarray]:
    return {name: values[agent] for name, values in said._asdict().items()}


def listen(agent: int, said: Message, heard: set[int] | None = None, net=None):
    others = set(range(AGENTS)) - {agent} if heard is None else heard
    listener = Listener(ALGORITHM, net or graph(), agent, LIMIT, Message, np.float64)
    return listener(of(said, agent), {j: of(said, j) for j in others})


def engines(agent: int, said: Message, net: hs.graphs.Graph):
    mixers = [mixer(net, channel, jnp.float64) for channel in CHANNELS]
    clipped = Message(*(np.clip(v, -LIMIT, LIMIT) for v in said))
    clipped = clipped._replace(pulling=np.clip(clipped.pulling, 0.0, 1.0))
    return engine.pick((clipped, engine.heard(mixers, clipped)), agent)


def test_all_channels_are_here():
    for name in CHANNELS:
        channel(name).row(graph(), 0)
    assert Message._fields == CHANNELS


@pytest.mark.parametrize("agent", range(AGENTS))
@pytest.mark.parametrize("seed", range(3))
def test_the_inbox_is_the_engines_to_the_last_bit(agent, seed):
    said = messages(seed)
    assert max(np.abs(v).max() for v in said) > LIMIT, "nothing to clip"
    sent, inbox = listen(agent, said)
    wanted_sent, wanted = engines(agent, said, graph())
    for found, right in ((sent, wanted_sent), (inbox.total, wanted.total), (inbox.own, wanted.own)):
        for name in CHANNELS:
            np.testing.assert_array_equal(getattr(found, name), getattr(right, name), name)


def test_who_is_not_heard_is_left_out_with_its_weight():
    """As in a network in which that edge does not exist."""
    said, thinned = messages(7), PULL.copy()
    thinned[1, 3] = 0
    _, inbox = listen(1, said, heard={0, 2})
    _, wanted = engines(1, said, graph(thinned))
    for name in ("coupling", "mixing"):
        np.testing.assert_array_equal(getattr(inbox.total, name), getattr(wanted.total, name))
        assert getattr(inbox.own, name) == getattr(wanted.own, name)
    _, nothing = listen(1, said, heard=set())
    assert np.all(nothing.total.mixing == 0)
    assert nothing.own.mixing == 1
    assert nothing.own.coupling == 0


def test_the_order_of_arrival_does_not_matter():
    said = messages(1, exact=False)
    listener = Listener(ALGORITHM, graph(), 2, LIMIT, Message, np.float64)
    found = []
    for order in ((0, 1, 3), (3, 0, 1), (1, 3, 0)):
        _, inbox = listener(of(said, 2), {j: of(said, j) for j in order})
        found.append([np.copy(total) for total in inbox.total])
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_on_any_numbers_the_two_differ_by_rounding_only():
    """A matrix product may fuse and reorder: at most one rounding per term and per sum."""
    rng = np.random.default_rng(5)
    net = hs.graphs.pair(
        hs.graphs.from_weights(rng.uniform(0, 0.3, (4, 4)) * (PULL > 0)),
        hs.graphs.from_weights(rng.uniform(0, 0.3, (4, 4)) * (PUSH > 0)),
    )
    said = messages(2, exact=False)
    _, inbox = listen(0, said, net=net)
    _, wanted = engines(0, said, net)
    for name in CHANNELS:
        room = 2 * AGENTS * np.finfo(float).eps * np.abs(np.asarray(getattr(said, name))).sum(0)
        off = np.abs(getattr(inbox.total, name) - np.asarray(getattr(wanted.total, name)))
        assert np.all(off <= room), name


def test_what_is_in_range_is_not_copied():
    values = np.array([-1.0, 0.5])
    assert within(values, -1.0, 1.0) is values
    assert within(np.array([np.nan, 3.0]), -1.0, 1.0)[1] == 1.0
    assert within(np.empty(0), -1.0, 1.0).size == 0


class Model(NamedTuple):
    params: np.ndarray


AVERAGED = hs.gradient_perturbation(averaging=3, chebyshev=True)
RING = hs.graphs.ring(AGENTS, weight=0.25)


def passed_on(values: np.ndarray) -> np.ndarray:
    """(phase, agent, coordinate): what deployed agents make of those messages."""
    listeners = [
        Listener(AVERAGED, RING, i, LIMIT, Model, np.float64) for i in range(AGENTS)
    ]  # fmt: skip
    now, before, found = values, [None] * AGENTS, []
    for weights in AVERAGED.relays(RING):
        fields = [{"params": row} for row in now]
        after = []
        for i, listen in enumerate(listeners):
            heard = {j: fields[j] for j in listen.hears}
            after.append(listen.relayed(weights, *listen(fields[i], heard), before[i])["params"])
        now, before = np.array(after), fields
        found.append(now)
    return np.array(found)


def test_relays_are_the_engines_to_the_last_bit():
    """Any numbers: with weights of 1/4 a sum has one order only."""
    values = np.random.default_rng(3).normal(size=(AGENTS, DIMENSION))
    problem = hs.problems.ridge(agents=AGENTS, records=2, dimension=DIMENSION)
    setting = engine.surroundings(AVERAGED, problem, RING, [0])
    for phases, found in enumerate(passed_on(values), start=1):
        short = setting._replace(relays=setting.relays[:phases])
        sent = Model(jnp.asarray(values))
        last, _ = jax.jit(engine.relay)(short, sent, engine.heard(setting.mixers, sent))
        np.testing.assert_array_equal(found, last.params)


def test_what_is_passed_on_is_made_of_clipped_numbers():
    """A neighbour that sends huge numbers moves relays as far as one that sends the largest
    honest ones: in every phase, and for what was sent before, too.
    """
    values = np.random.default_rng(3).normal(size=(AGENTS, DIMENSION))
    values[1] = 1e300
    clipped = values.copy()
    clipped[1] = LIMIT
    np.testing.assert_array_equal(passed_on(values), passed_on(clipped))
    assert np.abs(passed_on(values)).max() <= 3 * LIMIT

"""What a round sends: how long a message is, and who sends how many of them to whom.

A message is counted as a deployed agent puts it on the wire (deploy/messages.py): a safetensors
file with all fields of the message in float64, to everybody who hears the agent in any of them.
Where messages are averaged before they are used (algorithms/averaging.py), a round has as many
more exchanges, each of the same length. What comes on top of a file on its way (the key of Zenoh,
TLS, TCP/IP) is not counted, nor is what agents say before the first message.

Where an algorithm takes the average over all agents, it is a server that gives it: every message
goes up to it, and the average comes down to everybody, as long as a message.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from scipy import sparse

from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.graphs.channels import channel
from hearsay.problems.task import Task
from hearsay.release.tensors import packed_bytes
from hearsay.simulation import keys

# A private run is deployed in float64 and in no other precision (deploy/deployment.py).
NUMBERS = np.dtype("<f8")
# What a message says of itself, with names of usual lengths: deploy/messages.py has the real ones.
_ABOUT = {
    "schema": "1",
    "run": "r" * 8,
    "config": "c" * 64,
    "agent": "a" * 8,
    "instance": "i" * 32,
    "round": "1000",
}


class Traffic(NamedTuple):
    """Who sends what in a round.

    Args:
      message: bytes of a message.
      exchanges: how many messages an agent makes in a round.
      source: (link,), who sends, ordered by who hears and then by who sends; nobody where a server
        is between.
      begins: (agent + 1,), where the links to each agent begin.
      served: messages go up to a server, and an average comes down.
    """

    message: int
    exchanges: int
    source: np.ndarray
    begins: np.ndarray
    served: bool

    @property
    def agents(self) -> int:
        return len(self.begins) - 1

    @property
    def target(self) -> np.ndarray:
        """(link,), who hears."""
        return np.repeat(np.arange(self.agents), self.hears)

    @property
    def hears(self) -> np.ndarray:
        """(agent,), how many messages come to each in an exchange."""
        return np.ones(self.agents, int) if self.served else np.diff(self.begins)

    @property
    def heard_by(self) -> np.ndarray:
        """(agent,), how many messages each sends in an exchange."""
        if self.served:
            return np.ones(self.agents, int)
        return np.bincount(self.source, minlength=self.agents)

    @property
    def sent(self) -> np.ndarray:
        """(agent,), bytes that each sends in a round."""
        return self.heard_by * self.message * self.exchanges

    @property
    def total(self) -> int:
        """Bytes that are sent in a round, those of a server included."""
        return int(self.sent.sum()) * (2 if self.served else 1)


def traffic(algorithm: Algorithm, problem: Task, graph: Graph) -> Traffic:
    """What a round of that algorithm sends.

    Args:
      algorithm: whose messages are sent.
      problem: how many numbers a model has.
      graph: who hears whom.
    """
    algorithm.check(graph, problem)
    every = [channel(name).links(graph) for name in dict.fromkeys(algorithm.channels.values())]
    patterns = [links for links in every if links is not None]
    if patterns and len(patterns) < len(every):
        raise ValueError(
            f"the costs of {algorithm.name} are not known: some of its fields go through a server"
            " and others to neighbours"
        )
    links = _union(patterns) if patterns else sparse.csr_array(graph.weights.shape)
    return Traffic(
        message_bytes(algorithm, problem),
        1 + len(algorithm.relays(graph)),
        np.asarray(links.indices),
        np.asarray(links.indptr),
        not patterns,
    )


def message_bytes(algorithm: Algorithm, problem: Task) -> int:
    """How long a deployed agent's message is."""
    key = keys.stand_in(algorithm.keys, jax.random.key(0))
    params = jax.ShapeDtypeStruct((problem.dimension,), problem.dtype)
    # Noise and coins have the shapes of the fields that they belong to.
    draws = jax.eval_shape(algorithm.draw, key, params)
    shapes = {name: getattr(draws, name).shape for name in algorithm.channels}
    return packed_bytes(shapes, NUMBERS, _ABOUT)


def _union(patterns: list[sparse.csr_array]) -> sparse.csr_array:
    """Links of any of them, by who hears and then by who is heard."""
    ones = (sparse.csr_array((np.ones(p.nnz), p.indices, p.indptr), p.shape) for p in patterns)
    found = sparse.csr_array(sum(ones, start=sparse.csr_array(patterns[0].shape)))
    found.sort_indices()
    return found

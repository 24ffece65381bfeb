"""What an agent works out from net.toml before it sends anything: algorithm, task, graph, how many
messages, and the certificate.

All of that follows from what is public, so that all agents arrive at the same plan; only `records`,
and their hashes, are the agent's own.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.certification import allowance, calibrate
from hearsay.certification.certifying import deployed_numbers
from hearsay.config import build_algorithm, build_graph, build_secrets
from hearsay.deploy import budget
from hearsay.deploy.following import Following
from hearsay.deploy.pair_noise import require_drawable, require_independent
from hearsay.deploy.phases import Phases
from hearsay.deploy.records import own as own_records
from hearsay.deploy.settings import Network
from hearsay.graphs import Graph
from hearsay.privacy.certificate import Certificate
from hearsay.problems.data.records import Records
from hearsay.problems.data.stream import Stream
from hearsay.problems.task import Task
from hearsay.simulation.promise import allowed_steps

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_DELTA = 1e-5


@dataclass(frozen=True)
class Deployment:
    algorithm: Algorithm
    task: Task
    graph: Graph
    messages: int
    stopped: str | None  # why there will be fewer messages than asked for
    certificate: Certificate
    records: Records | Stream | None  # the agent's own
    rows: np.ndarray  # a hash of each of them (records.py)
    following: Following | None = None  # the file that they arrive in

    @property
    def phases(self) -> Phases:
        """The exchanges of a round: the message, and the relays of averaging."""
        return Phases(1 + len(self.algorithm.relays(self.graph)))

    @property
    def words(self) -> bytes:
        """What must stay as it is from the first message to a release: the algorithm with its
        noise, how many messages there are, and who shares how much noise with whom.
        """
        # To nine digits: another processor may round the last ones otherwise.
        numbers = re.compile(r"[0-9]+\.[0-9]+(e[-+]?[0-9]+)?")
        plan = repr((self.algorithm, self.messages))
        # They may follow from the number of colluders, in another version otherwise.
        if (shared := self.algorithm.shared(self.graph.agents)) is not None:
            plan += repr((shared.ratios, shared.pairs))
        return numbers.sub(lambda found: f"{float(found[0]):.9g}", plan).encode()

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.words).hexdigest()


def deployment(
    network: Network, agent: int | None, data: Path | None = None, *, rehearsed: bool = False
) -> Deployment:
    """The plan of that agent; None: of all of them, with nobody's records.

    `rehearsed`: the noise will be the simulator's.
    """
    config, own = network.config, network
    if network.precision != 64 and not rehearsed:
        require.fail(
            "precision in [run]",
            "64 in a private run: the rounding of float32 gives states away (see"
            " docs/threat-model.md)",
            32,
        )
    jax.config.update("jax_enable_x64", network.precision == 64)
    if data is not None and agent is not None:
        member = replace(network.members[agent], data=data)
        own = replace(
            network, members=(*network.members[:agent], member, *network.members[agent + 1 :])
        )
    found = own_records(own, agent)
    task, records, rows = found
    graph = build_graph(config, len(network.members))
    graph = replace(graph, lossy=network.policy == "skip")
    if (secrets := build_secrets(config)) is not None:
        # Algorithms check them too, and know no names.
        secrets.check(graph.agents, network.names)
    algorithm = build_algorithm(config, task, graph)
    require_deployable(algorithm, graph)
    if network.follow:
        require_arriving(algorithm)
    if algorithm.secrets is not None and not rehearsed:
        require_certificates(network)
    if "epsilon" not in config.privacy and "noise" not in config.algorithm:
        raise ValueError(
            "net.toml must say how private the run is: epsilon in [privacy], or noise in"
            " [algorithm]"
        )
    delta = config.delta
    if delta is None and algorithm.law.needs_delta:
        delta = _DELTA
    steps, why = allowed_steps(algorithm, task, graph, config.steps, None, None)
    if "epsilon" in config.privacy:
        targets = require.per_agent("epsilon in [privacy]", config.privacy["epsilon"], graph.agents)
        algorithm = _calibrated(algorithm, task, graph, steps, targets, delta)
    if (shared := algorithm.shared(graph.agents)) is not None and not rehearsed:
        require_drawable(shared)
    if (most := config.privacy.get("budget")) is not None:
        limits = require.per_agent("budget in [privacy]", most, graph.agents)
        shorter, reason = budget.within(algorithm, task, graph, steps, limits, delta)
        steps, why = (shorter, reason) if shorter < steps else (steps, why)
    certificate = budget.certificate(
        algorithm, task, graph, steps, delta, rehearsed=rehearsed, followed=network.follow
    )
    certificate = replace(certificate, names=tuple(network.names))
    following = None
    if network.follow and agent is not None:
        following = Following(own, agent, found, algorithm.sampling)
    return Deployment(algorithm, task, graph, steps, why, certificate, records, rows, following)


def require_deployable(algorithm: Algorithm, graph: Graph) -> None:
    """Shared noise has a proof on the lattice only without correlation; and what averaging needs of
    weights.
    """
    if "pairs" in algorithm.keys:
        raise ValueError(
            f"name in [algorithm] must be an algorithm without keys of pairs, got {algorithm.name}:"
            " deployed agents share keys for noise (secrets) and for nothing else; simulate it"
            " instead"
        )
    if algorithm.secrets is not None:
        require_independent(algorithm)
    relays = algorithm.relays(graph)
    if graph.lossy and relays[:, 1].any():
        raise ValueError(
            'chebyshev in [algorithm] must be false with policy = "skip", got true: its weights'
            " are for one matrix, and drive agents apart when messages are missing; average"
            ' without it, or with policy = "wait"'
        )
    if len(relays) and type(algorithm).coin is not Algorithm.coin:
        raise ValueError(
            f"relays of {algorithm.name} must be none in a deployed run, got {len(relays)}: its"
            " weights follow from a coin, and no bound on what is passed on is known"
        )


def require_arriving(algorithm: Algorithm) -> None:
    """Batches of records that have arrived are all that can be had while others are to come."""
    if not algorithm.sampling.grows:
        raise ValueError(
            "sampling in [algorithm] must be history or fresh with follow in [network], got"
            f" {algorithm.sampling}: its batches are of all records, and there is none before the"
            " last one has arrived"
        )


def require_certificates(network: Network) -> None:
    """Keys of pairs are only as good as the knowledge whose they are."""
    if any(member.credentials is None for member in network.members):
        raise ValueError(
            "endpoints must be tls for all agents with [secrets]: without certificates nobody can"
            " say whose key it is that noise is shared with, and anybody could be at the other end"
            " of every pair. hearsay network keys makes certificates (--simulate-noise rehearses"
            " without)"
        )


def require_safe(network: Network, insecure: bool) -> None:
    """Messages travel in the clear only within one machine, unless somebody insists."""
    open_ = [
        m.name for m in network.members if m.credentials is None and m.peer.host not in LOOPBACK
    ]
    if open_ and not insecure:
        raise ValueError(
            f"endpoints outside this machine must be tls, and those of {', '.join(open_)} are not:"
            " hearsay network keys makes certificates (--insecure allows plain TCP, where anybody"
            " can listen, forge and disturb)"
        )


def _calibrated(
    algorithm: Algorithm,
    task: Task,
    graph: Graph,
    steps: int,
    targets: list[float],
    delta: Any,
) -> Algorithm:
    """Noise such that no agent spends more than its target, what rounding costs included."""
    of_delta = algorithm.law.unit == "delta"
    limits = allowance(algorithm, targets, delta)
    aims, most = list(targets), delta
    for attempt in range(12):
        found = calibrate(algorithm, task, graph, steps, aims, delta=most)
        certified = deployed_numbers(found, task, graph, steps, delta)
        spent = [each.compared for each in certified]
        over = [max(0.0, got - limit) for got, limit in zip(spent, limits, strict=True)]
        if not any(over):
            return found
        if of_delta:
            # Calibration has a resolution of its own.
            most -= 1.5 * max(over) + 1e-9 * 8**attempt * most
        else:
            aims = [
                aim - (1.5 * e + 1e-9 * 8**attempt * aim if e else 0)
                for aim, e in zip(aims, over, strict=True)
            ]
        if min(aims) <= 0.5 * min(targets) or (of_delta and most <= 0):
            break
    raise ValueError(
        "epsilon in [privacy] is so small that rounding would take half of it, got"
        f" {min(targets):g}: a smaller radius in [problem] or fewer steps round less"
    )

"""Who learns, with what: the rows of the table, each as data.

A series says where its agents stand (alone, on the network, all records at one server) and which
settings it may have, from public facts alone. Gradient perturbation has the one setting of the rule
(rule.py). The four papers' methods have a private state, for which there is no such bound: they get
several settings around the rule's, and a rehearsal (rehearsal.py) picks one. All noise is Gaussian
and calibrated to the same (epsilon, delta).

    alone                  every agent by itself, on its own records, with settings for so many
    alone, the largest     those of them who have most records
    all others hostile     on the network; the certificate trusts nobody
    central                one server that holds everybody's records, and is trusted
    no noise               the network without privacy
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from hearsay.algorithms.correlated_federated import CorrelatedFederated
from hearsay.algorithms.gradient_perturbation import GradientPerturbation
from hearsay.algorithms.gradient_tracking import GradientTracking
from hearsay.algorithms.ldp_online import LdpOnline
from hearsay.algorithms.output_perturbation import OutputPerturbation
from hearsay.base import Algorithm
from hearsay.graphs import Graph
from hearsay.problems.data.records import padded
from hearsay.problems.problem import Problem, holding
from hearsay.problems.sampling.samplers import Cyclic, History, Sampling
from hearsay.problems.task import Task
from hearsay.schedules import Constant, SampleSize
from hearsay.tradeoff.rule import CHUNK, Setting, noisy_gradient, setting
from hearsay.tradeoff.sizes import classes, held_by


@dataclass(frozen=True)
class Candidate:
    """An algorithm whose noise is still to be calibrated, for so many rounds."""

    algorithm: Algorithm
    rounds: int
    words: str


Candidates = Callable[[Task, Graph, float, float], tuple[Candidate, ...]]


def whole(counts: np.ndarray) -> list[np.ndarray]:
    """All agents have the same settings."""
    return [np.arange(len(counts))]


@dataclass(frozen=True)
class Series:
    """A row of the table.

    Args:
      key: its name in files and on the command line.
      label: what readers see.
      stand: the problem and the graph as this series has them.
      candidates: settings that it may have, for (task, graph, epsilon, delta).
      together: all agents' messages make one released model; otherwise each agent releases its own.
      private: it has a point for every epsilon, instead of one for all.
      parts: agents with settings and a run of their own, by how many records all have; of several
        parts none hears another.
    """

    key: str
    label: str
    stand: Callable[[Problem, Graph], tuple[Problem, Graph]]
    candidates: Candidates
    together: bool = True
    private: bool = True
    parts: Callable[[np.ndarray], list[np.ndarray]] = whole


def on_the_network(problem: Problem, graph: Graph) -> tuple[Problem, Graph]:
    return problem, graph


def alone(problem: Problem, graph: Graph) -> tuple[Problem, Graph]:
    """Everybody at once, and nobody hears anybody: as many networks of one agent."""
    return problem, apart(problem.agents)


def largest(problem: Problem, graph: Graph) -> tuple[Problem, Graph]:
    """The agents with most records, each by itself."""
    return alone(held_by(problem, classes(problem.counts)[-1]), graph)


def apart(agents: int) -> Graph:
    return Graph(sparse.csr_array((agents, agents)), "alone")


def at_a_server(problem: Problem, graph: Graph) -> tuple[Problem, Graph]:
    """One agent that holds all records."""
    features, labels = (
        np.concatenate([own[:held] for own, held in zip(rows, problem.counts, strict=True)])
        for rows in (problem.features, problem.labels)
    )
    arrivals = replace(problem.arrivals, head_start=len(labels))
    start = None if problem.start is None else problem.first_models[:1]
    task = replace(problem.task, counts=np.array([len(labels)]), arrivals=arrivals, start=start)
    merged = holding(
        task,
        padded([len(labels)], [(features, labels)]),
        problem.test_features,
        problem.test_labels,
        problem.optimum,
    )
    return merged, Graph(sparse.csr_array((1, 1)), "server")


def by_the_rule(task: Task, graph: Graph, epsilon: float, delta: float) -> tuple[Candidate, ...]:
    """Gradient perturbation with secret batches (all records where the rule says so)."""
    chosen = setting(task, graph, epsilon, delta)
    return (Candidate(noisy_gradient(chosen), chosen.rounds, str(chosen)),)


def without_noise(task: Task, graph: Graph, epsilon: float, delta: float) -> tuple[Candidate, ...]:
    chosen = setting(task, graph, np.inf, delta)
    plain = replace(noisy_gradient(chosen), noise=Constant(0.0))
    return (Candidate(plain, chosen.rounds, str(chosen)),)


def around(
    make: Callable[[Task, Graph, Setting, float], Algorithm],
    travels: tuple[float, ...] = (1.0, 0.3),
    shares: tuple[float, ...] = (0.6, 0.3),
    rounds: float = 1.0,
    of: str = "coupling",
) -> Candidates:
    """Settings around the rule's: a share of its rounds, some of its travel (the sum of all steps),
    and how much agents listen to others (or what else `of` says).
    """

    def candidates(task: Task, graph: Graph, epsilon: float, delta: float) -> tuple[Candidate, ...]:
        chosen, found = setting(task, graph, epsilon, delta, weighted=False), []
        fewer = CHUNK * max(1, round(rounds * chosen.rounds / CHUNK))
        for travel in travels:
            for share in shares:
                step = travel * chosen.step * chosen.rounds / fewer
                some = replace(chosen, rounds=fewer, step=step)
                algorithm = make(task, graph, some, share)
                words = f"{some.rounds} rounds of step {some.step:.3g}, {of} {share:g}"
                found.append(Candidate(algorithm, some.rounds, words))
        return tuple(found)

    return candidates


def _round_the_records(task: Task, share: float) -> Sampling:
    """So many at a time, one after the other: secret coins would save these methods nothing."""
    if share == 1:
        return History("full")
    return Cyclic(SampleSize(Constant(float(max(1, int(share * task.counts.min()))))))


def ldp_online(task: Task, graph: Graph, chosen: Setting, coupling: float) -> Algorithm:
    return LdpOnline(
        step=Constant(chosen.step),
        coupling=Constant(coupling / float(graph.row_sums.max())),
        noise=Constant(1.0),
        mechanism="gaussian",
        sampling=_round_the_records(task, chosen.rate),
    )


def gradient_tracking(task: Task, graph: Graph, chosen: Setting, coupling: float) -> Algorithm:
    return GradientTracking(
        step=Constant(chosen.step),
        coupling=Constant(coupling / float(graph.row_sums.max())),
        tracking=Constant(coupling / float(graph.handed_out.max())),
        noise=Constant(1.0),
        mechanism="gaussian",
        sampling=_round_the_records(task, chosen.rate),
    )


def output_perturbation(task: Task, graph: Graph, chosen: Setting, coupling: float) -> Algorithm:
    return OutputPerturbation(
        step=Constant(chosen.step),
        coupling=Constant(coupling),
        noise=Constant(1.0),
        mechanism="gaussian",
        sampling=_round_the_records(task, chosen.rate),
    )


def correlated_federated(task: Task, graph: Graph, chosen: Setting, part: float) -> Algorithm:
    """`part` of the records of the agent that has the fewest are the local steps of a round."""
    share = min(part, chosen.rate)
    local = max(1, min(int(share * task.counts.min()), task.arrivals.block))
    smooth = task.loss.curvature[1]
    # A round moves the model by the rule's step; its local steps by a fraction of that.
    rate = min(chosen.step, 1 / smooth if np.isfinite(smooth) else chosen.step) / local
    return CorrelatedFederated(
        step=Constant(rate),
        server=chosen.step / (rate * local),
        horizon=chosen.rounds,
        factorization="banded",
        width=min(16, chosen.rounds),
        noise=Constant(1.0),
        sampling=Cyclic(SampleSize(Constant(float(local)))),
    )


def correlated(task: Task, graph: Graph, chosen: Setting, part: float) -> Algorithm:
    """Gradient perturbation on cyclic batches of that part of the records, with banded noise as
    wide as the cycle.
    """
    share = min(part, chosen.rate)
    plain = noisy_gradient(replace(chosen, rate=1.0))
    assert isinstance(plain, GradientPerturbation)
    return replace(
        plain,
        sampling=_round_the_records(task, share),
        correlation="banded",
        width=min(chosen.rounds, max(2, round(1 / share))),
        horizon=chosen.rounds,
    )


LARGEST = "alone-largest"
ALL = (
    Series("alone", "alone", alone, by_the_rule, together=False, parts=classes),
    Series(LARGEST, "alone, who has most records", largest, by_the_rule, together=False),
    Series("ldp-online", "P1, locally private online learning", on_the_network, around(ldp_online)),
    Series(
        "gradient-tracking",
        "P2, gradient tracking",
        on_the_network,
        around(gradient_tracking, (0.3, 0.1), (0.3, 0.1), rounds=0.25),
    ),
    Series(
        "output-perturbation",
        "P3, output perturbation",
        on_the_network,
        around(output_perturbation),
    ),
    Series(
        "correlated-federated",
        "P4, federated with correlated noise",
        on_the_network,
        around(correlated_federated, (1.0,), (1.0, 0.5, 0.25, 0.125), of="share of records"),
    ),
    Series(
        "secret-batches",
        "gradient perturbation, secret or full batches",
        on_the_network,
        by_the_rule,
    ),
    Series(
        "correlated-noise",
        "gradient perturbation, correlated noise",
        on_the_network,
        around(correlated, (1.0,), (0.5, 0.25, 0.125, 0.0625), of="batches of a share"),
    ),
    Series("central", "central, a trusted server", at_a_server, by_the_rule),
    Series("no-noise", "no noise, no privacy", on_the_network, without_noise, private=False),
)
SERIES = {series.key: series for series in ALL}

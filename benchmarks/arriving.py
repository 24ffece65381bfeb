"""What settings for records that arrive round by round are worth on real data sets (those of
benchmarks/settings.py), beside ldp-online with its own defaults, and a rehearsal with all records
there.

    python -m benchmarks.arriving [--splits 5] [--seeds 2] [--epsilon 1 2] [--data digits]

Records begin to arrive when the first round does, or a fifth of them are there before; an agent's
come in about 100 rounds. Adjacency is zero-out, delta = 1e-5, everybody hears everybody, all others
hostile. Measured is the released model on records set aside: accuracy, for diabetes the share of
variance explained. "Half-way": after half of the rounds in which records arrive. "Alone": one
agent by itself, whose records arrive alike, with settings that it has rehearsed. ldp-online has
the noise schedule, the step, the coupling and the ridge of `hearsay run`, with Laplace noise (its
default) or Gaussian noise, as many rounds as it takes until all records are there, and a read-out
of the last half of its messages.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import hearsay as hs
from benchmarks.settings import DELTA, Make, asked, mean_score, sets
from hearsay.release.readouts import Tail
from hearsay.tradeoff import usual_graph
from hearsay.tradeoff.arriving import half_way, until_all_are_there
from hearsay.tradeoff.choices import COUPLING, Law
from hearsay.tradeoff.contest import exchanged, guessing
from hearsay.tradeoff.rehearsing import nobody
from hearsay.tradeoff.sizes import some_of
from hearsay.tradeoff.trial import exchange, scores

NOISE = "1*(k+1)^0.1"  # what hearsay run takes where nothing is said of it
ROUNDS = 100


def rehearsed(problems: list[Any], graph: Any, epsilon: float, given: Any, come: bool) -> Any:
    """(the rehearsal, its score, the same half-way)."""
    task = replace(problems[0].task, seed=0)
    found = hs.rehearse(task, graph, epsilon, delta=DELTA, arriving=come)
    law = Law(task, graph, epsilon, DELTA, None)
    column, passed = law.column(found.choice), exchanged(found.choice, law)
    half = half_way(task)
    on_the_way, end = (
        mean_score(problems, passed, one, found.readout, given.seeds)
        for one in (column.cut(half), column)
    )
    return found, end, on_the_way


def alone(problems: list[Any], epsilon: float, given: Any) -> float:
    """One agent by itself, whose records arrive alike: the mean over agents, who are alike."""
    first = some_of(replace(problems[0].task, seed=0), np.array([0]))
    found = hs.rehearse(first, nobody(1), epsilon, delta=DELTA, arriving=True)
    task, apart = problems[0].task, nobody(problems[0].agents)
    column = Law(task, apart, epsilon, DELTA, None).column(found.choice)
    passed = exchange(apart, COUPLING, np.zeros((0, 2)))
    return mean_score(problems, passed, column, found.readout, given.seeds, together=False)


def online(problems: list[Any], graph: Any, epsilon: float, law: str, given: Any) -> float:
    """ldp-online as it comes."""
    found = []
    for number, problem in enumerate(problems):
        # Its theory asks for curvature: the ridge that the command has.
        loss = replace(problem.loss, ridge=0.01)
        own = replace(problem, loss=loss)
        rounds = until_all_are_there(problem.task)
        algorithm = hs.ldp_online(noise=NOISE, mechanism=law)
        algorithm = hs.calibrate(algorithm, own, graph, rounds, epsilon=epsilon, delta=DELTA)
        run = hs.simulate(
            algorithm,
            own,
            graph,
            steps=rounds,
            seeds=[given.seeds * number + seed for seed in range(given.seeds)],
            delta=DELTA,
            every=rounds,
            reference=False,
            regret=False,
            release=(Tail(),),
        )
        models = np.stack([one.mean(axis=0) for one in run.averages["tail"]])[None]
        found.append(scores(problem, models).mean())
    return float(np.mean(found))


def row(name: str, make: Make, epsilon: float, share: float, given: Any) -> str:
    problems = []
    for seed in range(given.splits):
        whole = make(seed)
        head, per_step = int(share * whole.most), max(1, round(whole.most / ROUNDS))
        arrivals = replace(whole.arrivals, head_start=head, per_step=per_step)
        problems.append(replace(whole, arrivals=arrivals))
    graph = usual_graph(problems[0].agents)
    found, end, half = rehearsed(problems, graph, epsilon, given, True)
    _, there, _ = rehearsed(problems, graph, epsilon, given, False)
    numbers = [
        np.mean([guessing(one) for one in problems]),
        *(online(problems, graph, epsilon, law, given) for law in ("laplace", "gaussian")),
        alone(problems, epsilon, given),
        half,
        end,
        there,
    ]
    shown = " | ".join(f"{value:.3f}" for value in numbers)
    return f"| {name} | {epsilon:g} | {share:.0%} | {shown} | {found.choice.words} |"


def main() -> None:
    given, known = asked(__doc__, 5), sets()
    heads = (
        "data | epsilon | there before | guessing | ldp-online, Laplace | ldp-online, Gaussian"
        " | alone | half-way | rehearsed | all there"
    )
    print(f"| {heads} | settings |\n|{'---|' * 11}")
    for name in given.data or known:
        for epsilon in given.epsilon:
            for share in (0.0, 0.2):
                print(row(name, known[name], epsilon, share, given), flush=True)


if __name__ == "__main__":
    main()

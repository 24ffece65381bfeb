"""What stands beside the accuracy of a run: guessing, the same settings without noise, and every
agent alone with the same epsilon.

All three are measured on the run's own problem. Alone is gradient perturbation with settings that
an agent has rehearsed by itself (rehearsing.py), each on its own records, and the model that it may
release; where agents hold different numbers of records, what each would have is kept, too: a large
one may do as well without the others. For neural networks, where a second run would take as long as
the first, only guessing is known. Like the accuracy itself they are measured on records, and no
certificate covers them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hearsay.base import Algorithm
from hearsay.certification import unit
from hearsay.problems.problem import Problem
from hearsay.schedules import Constant
from hearsay.simulation.result import Beside, Run
from hearsay.simulation.simulating import simulate
from hearsay.tradeoff import rule
from hearsay.tradeoff.choices import COUPLING, Choice, Law
from hearsay.tradeoff.rehearsing import by_themselves, nobody
from hearsay.tradeoff.sizes import classes, held_by
from hearsay.tradeoff.trial import exchange, released, scores

_SEEDS = 4
_DELTA = 1e-5
_KINDS = 32
# Records times parameters times rounds and seeds: some seconds.
_MOST = 5e10


def beside(run: Run, devices: int | str | None = None) -> Beside:
    """The three numbers of a run, in the unit of what it released; None where one is not known.

    Args:
      run: with a test set.
      devices: that it was run on, as `simulate` takes them.
    """
    problem = run.problem
    if not run.tested:
        return Beside(None, None, None)
    guess = run.guessing if problem.classification else float(problem.test_labels.var())
    if not problem.loss.convex or problem.endless or run.interrupted:
        return Beside(guess, None, None)
    each = _alone(run)
    alone = None if each is None else float(np.mean(each))
    differ = each is not None and len(set(run.problem.counts.tolist())) > 1
    return Beside(guess, _clean(run, devices), alone, tuple(each or ()) if differ else None)


def with_beside(run: Run, devices: int | str | None = None) -> Run:
    """The run, which knows them."""
    return replace(run, beside=beside(run, devices))


def _clean(run: Run, devices: int | str | None) -> float | None:
    """The same settings without noise."""
    if not run.averages:
        return None
    try:
        again = simulate(
            _quiet(run.algorithm),
            run.problem,
            run.graph,
            steps=int(run.steps[-1]),
            # As many as before: the same program serves.
            seeds=run.seeds,
            every=max(1, int(run.steps[1] - run.steps[0])) if len(run.steps) > 1 else None,
            delta=run.certificate.slack or run.certificate.delta,
            reference=False,
            release=run.readouts,
            faults=run.faults,
            devices=devices,
        )
    except ValueError:
        # A method that is nothing without its noise.
        return None
    name = "released_accuracy" if run.problem.classification else "released_error"
    found = again.final(name)[0]
    return found if math.isfinite(found) and not again.interrupted else None


def _quiet(algorithm: Algorithm) -> Algorithm:
    noise = algorithm.noise
    zero = Constant(0.0)
    return replace(algorithm, noise=(zero,) * len(noise) if isinstance(noise, tuple) else zero)


def _alone(run: Run) -> list[float] | None:
    """Of every agent. Agents of one size and one budget have the same settings."""
    spent = np.array(run.certificate.epsilon)
    task = replace(run.problem.task, seed=0)
    known = rule.travels(task) and task.declared is None and unit(run.algorithm) == "epsilon"
    if not known or not np.all(np.isfinite(spent)) or not np.all(spent > 0):
        return None
    found, delta = np.zeros(task.agents), run.certificate.slack or _DELTA
    facts = np.column_stack([task.counts, spent.round(6)])
    kinds, kind = np.unique(facts, axis=0, return_inverse=True)
    each = [np.flatnonzero(kind.ravel() == place) for place in range(len(kinds))]
    # Of very many kinds those are together whose noise is about the same.
    quiet, choices = task.counts * spent, np.empty(task.agents, object)
    for single in by_themselves(task, tuple(spent.tolist()), delta):
        choices[single.agents] = [single.chosen(one, task) for one in quiet[single.agents]]
    for own in each if len(kinds) <= _KINDS else classes(quiet, _KINDS):
        choice, epsilon = choices[own[len(own) // 2]], tuple(spent[own].tolist())
        scores = _by_themselves(held_by(run.problem, own), choice, epsilon, delta)
        if scores is None:
            return None
        found[own] = scores
    if not run.problem.classification:
        found = (1 - found) * run.problem.test_labels.var()
    return found.tolist()


def _by_themselves(
    problem: Problem, choice: Choice, epsilon: tuple[float, ...], delta: float
) -> list[float] | None:
    """The score of each agent with the same settings for all."""
    task = replace(problem.task, seed=0)
    apart = nobody(task.agents)
    work = float(task.counts.sum()) * task.dimension * choice.rounds * _SEEDS
    if choice.rate < 1 or work > _MOST:
        return None
    column = Law(task, apart, epsilon, delta, None).column(choice)
    passed = exchange(apart, COUPLING, np.zeros((0, 2)))
    prepared = choice.prepared(problem)
    averages, seeds = (choice.average,), range(_SEEDS)
    ((models,),) = released(prepared, passed, [column], averages, seeds, together=False)
    return [float(scores(prepared, own[None]).mean()) for own in models]

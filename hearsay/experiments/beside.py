"""What the library reaches beside a paper's setting, at a budget that is certified.

    own       the paper's method with the best of a few steps at its own certified budget
    cheapest  noise on clipped gradients of batches that go round the records
    secret    the same with batches by secret coins (hearsay.Poisson) and noise that pairs of agents
              share (hearsay.Secrets), the best that the library has where not everybody colludes

Each is the best of a few step sizes by test accuracy, a search that no budget pays for: the reports
say so. Whoever names the runs that are wanted may name the step of each, of an earlier search: it
alone is run then, with whatever seeds are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.certification import calibrate
from hearsay.experiments.images import (
    CHEAP,
    DELTA,
    EPSILON,
    SHARED,
    Runs,
    Trial,
    certified,
    run,
)
from hearsay.experiments.parts import OutOfTime, or_left
from hearsay.experiments.runner import Experiment, with_step_factors
from hearsay.experiments.settings import Settings
from hearsay.graphs import Graph
from hearsay.graphs.secrets import Secrets
from hearsay.privacy.adjacency import ZERO_OUT
from hearsay.problems import Problem
from hearsay.schedules import schedule
from hearsay.simulation.result import Run


class Own(NamedTuple):
    """A configuration whose certified budget is to be spent better: with the best of `factors`
    times its step.
    """

    name: str
    algorithm: Algorithm
    graph: Graph
    factors: Sequence[float]


# The runs that are wanted, each with the step that an earlier search found (None: to be searched).
Wanted = Mapping[str, str | None]


def chosen(only: Sequence[str] | Wanted | None, known: Sequence[str]) -> dict[str, str | None]:
    """The runs that are wanted; all unless told otherwise, and none with a step unless so told."""
    wanted = dict(only) if isinstance(only, Mapping) else dict.fromkeys(only or ())
    for name in wanted:
        require.one_of("only", name, known)
    return dict.fromkeys(known) if only is None else wanted


def candidates(options: Sequence[Algorithm], step: str | None) -> list[Algorithm]:
    """The options among which the best is searched, or the one that has this step."""
    found = [option for option in options if step in (None, str(option.step_size))]
    return found or require.fail("step", ", ".join(str(o.step_size) for o in options), step)


def secret_names(found: Settings) -> dict[str, float]:
    """The runs with secrets, and the epsilon of each."""
    return {found.text("secret", epsilon=each): each for each in found["secret"]["epsilons"]}


def side_by_side(
    experiment: Experiment,
    trials: Mapping[str, Trial],
    own: Own,
    clipped: Problem,
    graph: Graph,
    steps: int,
    only: Sequence[str] | Wanted | None,
) -> Runs:
    """The trials as printed and, beside them, what the budget of one of them and a far smaller one
    can buy. What needs an accountant of its own is for the papers' scale, or on request.
    """
    secrets = secret_names(experiment.settings)
    wanted = chosen(only, [*trials, own.name, CHEAP, *secrets])
    if only is None and experiment.scale != "paper":
        wanted = {name: step for name, step in wanted.items() if name not in secrets}
    runs: Runs = {}
    for name in experiment.each("as printed", (name for name in trials if name in wanted)):
        with or_left(name):
            runs[name] = run(experiment, *trials[name], steps)
    if CHEAP in wanted:
        with or_left(CHEAP):
            runs[CHEAP] = cheapest(experiment, clipped, graph, steps, wanted[CHEAP])
    runs |= with_secrets(experiment, clipped, graph, steps, wanted)
    if own.name in wanted:
        with or_left(own.name):
            same = certified(own.algorithm, clipped, own.graph, steps)
            scaled = with_step_factors(own.algorithm, own.factors).values()
            options = candidates(list(scaled), wanted[own.name])
            runs[own.name] = better(
                experiment, options, clipped, own.graph, steps, same, "same budget"
            )
    if not runs:
        raise OutOfTime("there was no time for a single run")
    return {name: runs[name] for name in wanted if name in runs}


def better(
    experiment: Experiment,
    options: Sequence[Algorithm],
    problem: Problem,
    graph: Graph,
    steps: int,
    epsilon: float,
    stage: str,
) -> Run:
    """The option that ends with the highest accuracy, each with noise that spends `epsilon`
    (at DELTA for Gaussian noise).
    """
    tried = []
    for option in experiment.each(stage, options):
        delta = DELTA if option.law.needs_delta else None
        ready = calibrate(option, problem, graph, steps, epsilon, delta=delta)
        tried.append(run(experiment, ready, problem, graph, steps))
    return best(tried)


def best(tried: Sequence[Run]) -> Run:
    return max(tried, key=lambda found: np.nan_to_num(found.final("accuracy")[0], nan=0.0))


def cheapest(
    experiment: Experiment, problem: Problem, graph: Graph, steps: int, step: str | None
) -> Run:
    """Noise on clipped mean gradients of large batches, each record once per pass:
    the cheapest way to privacy that the library has for networks where nothing is secret but the
    noise.
    """
    size = min(SHARED["cheap_batch"], int(problem.counts.min()))
    options = [
        SHARED.algorithm("cheap", step=each, sample_size=size) for each in SHARED["cheap_steps"]
    ]
    return better(
        experiment, candidates(options, step), problem, graph, steps, EPSILON, "small budget"
    )


def with_secrets(
    experiment: Experiment, problem: Problem, graph: Graph, steps: int, wanted: Wanted
) -> Runs:
    """Secrets and secret batches, at each budget that is wanted. Amplification by coins is for a
    record that is there or not, so these budgets are under zero-out adjacency.
    """
    found, runs = experiment.settings, {}
    emptied, keys = problem.under(ZERO_OUT), found["secret"]
    method, delta = (
        found.algorithm("secret", secrets=Secrets(keys["colluders"])),
        keys["delta"],
    )
    for name, epsilon in secret_names(found).items():
        if name not in wanted:
            continue
        with or_left(name):
            # The same noise for all steps, which it does not depend on: the search takes a while.
            ready = calibrate(method, emptied, graph, steps, epsilon, delta=delta)
            options = [replace(ready, step=schedule("step", step)) for step in keys["steps"]]  # type: ignore[call-arg]
            options = candidates(options, wanted[name])
            runs[name] = best(
                [
                    run(experiment, option, emptied, graph, steps, delta)
                    for option in experiment.each(name, options)
                ]
            )
    return runs

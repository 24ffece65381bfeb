"""From a target to a schedule: the noise that meets a privacy budget and, on request, the exponents
that promise the fastest learning under it.

Scaling the noise is exact (certification/). Exponents are chosen on a grid: among those
that meet the paper's hypotheses, each with some room to spare, the one whose theorem promises the
largest rate r, E|x - x*|^2 = O(k^-r). With a sample budget and no end in sight the promise is read
per record instead of per step, r / (1 + gamma), because k steps use about k^(1 + gamma) records.
Sample sizes do not enter the rate: of the sizes that the budget allows, the smallest whose noise is
within a fiftieth of the least.

Asymptotic rates favour steps that fall like 1/k, which may take forever to leave the start behind.
A choice must also forget the start as fast as it learns: exp(-2 mu sum_k alpha_k) <= K^-r at the
horizon (or at 10^5 steps).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.algorithms.gradient_perturbation import GradientPerturbation
from hearsay.algorithms.ldp_online import LdpOnline
from hearsay.algorithms.output_perturbation import OutputPerturbation
from hearsay.algorithms.theory.exponents import (
    gradient_budget,
    gradient_noise_limit,
    gradient_rate,
    oracle_exponent,
    output_budget,
    output_noise_limit,
    output_rate,
)
from hearsay.algorithms.theory.findings import Finding, findings
from hearsay.algorithms.theory.ldp_online import rate as ldp_rate
from hearsay.base import Algorithm
from hearsay.certification import calibrate, certify
from hearsay.config import Config, secrets_table
from hearsay.graphs import Graph
from hearsay.graphs.secrets import Secrets
from hearsay.privacy.certificate import Certificate
from hearsay.problems.sampling.samplers import SAMPLERS, Poisson, Sized
from hearsay.problems.task import Task, public
from hearsay.schedules import Constant, PowerLaw, SampleSize, Schedule

_ROOM = 0.02  # how far inside a strict inequality a choice must lie; also the grid's spacing
_SIZES = np.arange(0.0, 1.55, 0.1).round(9).tolist()  # exponents of sample sizes
_PRACTICAL = 100_000  # the horizon at which an endless run must have left its start behind


@dataclass(frozen=True)
class Plan:
    """rate: the promised exponent r, None where no theorem makes a promise.

    oracle: an accuracy e takes about e^-oracle records. records:
    what each agent uses over the horizon.
    """

    algorithm: Algorithm
    problem: Task
    graph: Graph
    horizon: float
    delta: float | None
    certificate: Certificate
    rate: float | None
    oracle: float | None
    records: float
    findings: tuple[Finding, ...]

    @property
    def _secrets(self) -> Secrets | None:
        """With the ratio and degree that were planned, in numbers: as the noise is."""
        secrets = self.algorithm.secrets
        return secrets and secrets.facing(secrets.colluders, self.graph.agents)

    def config(self, described: Config, steps: int | None = None) -> Config:
        """The configuration that runs this plan, from the one that described
        its problem and graph.
        """
        # An algorithm from outside may be known here by its place only.
        named = {"name": described.algorithm.get("name", self.algorithm.name)}
        table = {**as_table(self.algorithm), **named}
        secrets = secrets_table(self._secrets)
        tables = replace(described, algorithm=table, secrets=secrets)
        tables = tables.without("privacy", "epsilon")
        steps = require.optional(require.count)("steps", steps)
        length = int(self.horizon) if math.isfinite(self.horizon) else (steps or described.steps)
        return tables.merged({"run": {"steps": length}})


def plan(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    horizon: float,
    epsilon: float | Sequence[float],
    *,
    delta: float | None = None,
    exponents: bool = False,
    samples: float | None = None,
) -> Plan:
    """Choose the noise of `algorithm` so that no agent spends more than `epsilon` (one number, or
    one per agent) over the horizon.

    Args:
      horizon: number of messages, or infinity.
      delta: at which `epsilon` holds; needed for Gaussian noise, and None for a pure epsilon.
      exponents: choose the exponents of step, coupling, noise and sample size too (ldp-online,
        output-perturbation, gradient-perturbation).
      samples: the most records that an agent may use over the horizon; over an infinite one, go by
        records instead of steps.
    """
    require.instance(
        "algorithm", algorithm, Algorithm, "an algorithm such as hearsay.output_perturbation()"
    )
    problem = public(problem)
    algorithm.check(graph, problem)
    horizon = require.horizon("horizon", horizon)
    targets = require.per_agent("epsilon", epsilon, graph.agents)
    if horizon == 0:
        require.fail("horizon", "at least 1 message, or inf", 0)
    delta, samples = (
        require.optional(require.fraction)("delta", delta),
        require.optional(require.positive)("samples", samples),
    )
    if samples is not None and samples < horizon < math.inf:
        raise ValueError(
            f"samples must be at least {int(horizon)}, one record for each of {int(horizon)} steps,"
            f" got {samples:g}"
        )
    if exponents:
        algorithm = _chosen(algorithm, problem, graph, horizon, targets, delta, samples)
    elif samples is not None and (used := _records(algorithm, problem, horizon)) > samples:
        raise ValueError(
            f"samples must be at least {used:,.0f}, what {algorithm.sampling} uses in that horizon,"
            f" got {samples:g}; let the exponents be chosen, or shorten the horizon"
        )
    algorithm = calibrate(algorithm, problem, graph, horizon, targets, delta=delta)
    rate = promised(algorithm)
    gamma = _growth(algorithm)
    return Plan(
        algorithm, problem, graph, horizon, delta,
        certify(algorithm, problem, graph, horizon, delta=delta),
        rate, None if rate is None or rate <= 0 else oracle_exponent(rate, gamma),
        _records(algorithm, problem, horizon), tuple(findings(algorithm, graph, problem)),
    )  # fmt: skip


def promised(algorithm: Algorithm) -> float | None:
    """The rate of the algorithm's own theorem for its exponents;
    None where it has none or its schedules are not power laws.
    """
    if not isinstance(algorithm, (LdpOnline, OutputPerturbation, GradientPerturbation)):
        return None
    noise = algorithm.noise if isinstance(algorithm.noise, tuple) else (algorithm.noise,)
    laws = [_exponent(s) for s in (algorithm.step, algorithm.coupling, *noise)]  # type: ignore[attr-defined]
    if any(law is None for law in laws):
        return None
    step, coupling, *grow = (float(law) for law in laws if law is not None)
    return _rate(algorithm, -step, -coupling, max(grow))


def _rate(algorithm: Algorithm, step: float, coupling: float, noise: float) -> float:
    """The theorem's rate for these decay exponents of step and coupling and this growth
    exponent of the noise.
    """
    if isinstance(algorithm, LdpOnline):
        return ldp_rate(coupling, step, noise)
    form = output_rate if isinstance(algorithm, OutputPerturbation) else gradient_rate
    return form(step, coupling, noise)


class Choice(NamedTuple):
    """Exponents, all of them as the papers write them: alpha, beta, eta, gamma (paper P1:
    v, u, the noise's, and no sample size).
    """

    step: float
    coupling: float
    noise: float
    size: float


Condition = tuple[str, Callable[[Choice], bool]]


def _chosen(
    algorithm: Algorithm,
    problem: Task,
    graph: Graph,
    horizon: float,
    targets: Sequence[float],
    delta: float | None,
    samples: float | None,
) -> Algorithm:
    if not isinstance(algorithm, (LdpOnline, OutputPerturbation, GradientPerturbation)):
        raise ValueError(
            "exponents can be chosen for ldp-online, output-perturbation and"
            f" gradient-perturbation, whose theorems promise a rate, not for {algorithm.name}"
        )
    sized = isinstance(algorithm.sampling, Sized) and not isinstance(algorithm, LdpOnline)
    grid = [np.arange(0.5, 1.0, _ROOM), np.arange(0.3, 1.0, _ROOM), np.arange(0.0, 0.5, _ROOM)]
    left = [
        Choice(a, b, e, 0.0)
        for a, b, e in itertools.product(*(axis.round(9).tolist() for axis in grid))
    ]
    left = _filtered(left, _hypotheses(algorithm, problem, horizon))
    left = [
        choice._replace(size=size) for choice in left for size in (_SIZES if sized else _SIZES[:1])
    ]
    left = _filtered(left, _affordable(algorithm, problem, horizon, samples))
    per_record = samples is not None and math.isinf(horizon)
    score = {c: _rate(algorithm, *c[:3]) / (1 + c.size if per_record else 1) for c in left}
    best = max(score.values()) - 1e-9
    first = min((c for c in left if score[c] >= best), key=lambda c: (c.noise, -c.step, c))
    options = [c for c in left if c[:3] == first[:3] and score[c] >= best]
    ready = [_with_exponents(algorithm, option, sized) for option in options]
    return _with_least_noise(ready, problem, graph, horizon, targets, delta)


def _filtered(choices: list[Choice], conditions: list[Condition]) -> list[Choice]:
    for name, holds in conditions:
        choices = [choice for choice in choices if holds(choice)]
        if not choices:
            raise ValueError(
                f"no choice of exponents meets the target: {name} cannot hold together with the"
                " conditions before it"
            )
    return choices


def _hypotheses(algorithm: Algorithm, problem: Task, horizon: float) -> list[Condition]:
    """What the paper's theorem asks of step, coupling and noise, and forgetting the start."""
    inside = _ROOM - 1e-9
    found: list[Condition] = [
        (
            "0 < coupling's decay < step's decay < 1",
            lambda c: c.coupling <= c.step - inside and c.step <= 1 - inside,
        )
    ]
    if isinstance(algorithm, LdpOnline):
        found.append(
            (
                "Assumption 4, noise exponent + 1/2 < coupling's decay",
                lambda c: c.noise + 0.5 <= c.coupling - inside,
            )
        )
    elif isinstance(algorithm, OutputPerturbation):
        found.append(
            (
                "Theorem 4, eta <= (3 beta - 2)/2",
                lambda c: c.noise <= output_noise_limit(c.step, c.coupling),
            )
        )
    else:
        found.append(
            (
                "Theorem 7, eta <= min(beta, alpha - beta)/2",
                lambda c: c.noise <= gradient_noise_limit(c.step, c.coupling),
            )
        )
    found.append(("a positive rate", lambda c: _rate(algorithm, *c[:3]) > 1e-9))
    mu, scale, length = (
        problem.smoothness[0],
        float(algorithm.step_size(0)),
        min(horizon, _PRACTICAL),
    )

    def forgets(c: Choice) -> bool:
        # About the sum of the steps.
        travelled = scale * (length ** (1 - c.step) - 1) / (1 - c.step)
        return 2 * mu * travelled >= _rate(algorithm, *c[:3]) * math.log(length)

    if mu > 0 and length > 1:
        found.append(
            (
                (
                    f"forgetting the start within {length:g} steps (2 mu sum alpha_k >= r log K; a"
                    " larger step scale helps)"
                ),
                forgets,
            )
        )
    return found


def _affordable(
    algorithm: Algorithm, problem: Task, horizon: float, samples: float | None
) -> list[Condition]:
    """What an infinite horizon and a sample budget ask, mostly of the sample size."""
    found: list[Condition] = []
    once = algorithm.sampling.pattern(float(problem.counts.min()), problem.arrivals).single
    if math.isinf(horizon) and not once and isinstance(algorithm, OutputPerturbation):
        weight = float(algorithm.coupling(0))

        def finite(c: Choice) -> bool:
            return output_budget(c.step, c.coupling, c.size, c.noise, weight).margin >= 2 * _ROOM

        found.append(("Theorem 2 (iii), alpha + gamma - beta + eta > 1", finite))
    if math.isinf(horizon) and not once and isinstance(algorithm, GradientPerturbation):
        found.append(
            ("Theorem 5, gamma + eta > 1", lambda c: gradient_budget(c.size, c.noise) >= 2 * _ROOM)
        )
    if samples is not None and math.isfinite(horizon) and isinstance(algorithm.sampling, Sized):
        used = {
            g: float(np.sum(SampleSize(PowerLaw(1.0, g))(np.arange(int(horizon))))) for g in _SIZES
        }
        found.append(
            (f"the sample budget of {samples:g} records", lambda c: used[c.size] <= samples)
        )
    return found


def _with_exponents(algorithm: Any, choice: Choice, sized: bool) -> Algorithm:
    """The same scales and shifts with other exponents."""
    parts: dict[str, Any] = {
        "step": _with_exponent(algorithm.step, -choice.step),
        "coupling": _with_exponent(algorithm.coupling, -choice.coupling),
        "noise": _with_exponent(algorithm.noise_for(0), choice.noise),
    }
    if sized:
        parts["sampling"] = replace(algorithm.sampling, size=SampleSize(PowerLaw(1.0, choice.size)))
    return replace(algorithm, **parts)


def _with_exponent(law: Schedule, exponent: float) -> PowerLaw:
    shift = law.shift if isinstance(law, PowerLaw) else 1.0
    scale = law.scale if isinstance(law, PowerLaw) else float(law(0))
    return PowerLaw(scale or 1.0, exponent, shift)


def _with_least_noise(
    options: Sequence[Algorithm],
    problem: Task,
    graph: Graph,
    horizon: float,
    targets: Sequence[float],
    delta: float | None,
) -> Algorithm:
    """The first option whose noise is within a fiftieth of the least that any of them needs."""
    levels, reason = [], ""
    for option in options:
        try:
            ready = calibrate(option, problem, graph, horizon, targets, delta=delta)
            levels.append(max(float(ready.noise_for(i)(0)) for i in range(graph.agents)))
        except ValueError as error:
            levels.append(math.inf)
            reason = str(error)
    if math.isinf(min(levels)):
        raise ValueError(reason)
    return next(o for o, level in zip(options, levels, strict=True) if level <= 1.02 * min(levels))


def _records(algorithm: Algorithm, problem: Task, horizon: float) -> float:
    """Records that an agent's gradients use over the horizon, counted each time."""
    if math.isinf(horizon):
        return math.inf
    most = float(problem.counts.max())
    sizes = algorithm.sampling.sizes(np.arange(int(horizon)), most, problem.arrivals)
    return float(np.sum(np.minimum(sizes, most)))


def _growth(algorithm: Algorithm) -> float:
    size = getattr(algorithm.sampling, "size", None)
    law = size.law if isinstance(size, SampleSize) else None
    return law.exponent if isinstance(law, PowerLaw) else 0.0


def _exponent(law: Schedule) -> float | None:
    if isinstance(law, Constant):
        return 0.0
    return law.exponent if isinstance(law, PowerLaw) else None


def as_table(algorithm: Algorithm) -> dict[str, Any]:
    """The algorithm as the [algorithm] table of a configuration; building it gives back the same
    algorithm. Its secrets are a table of their own (`config.secrets_table`).
    """
    table: dict[str, Any] = {"name": algorithm.name}
    for key, value in algorithm.options.items():
        if value is None or key == "secrets":  # what a table leaves out stays at its default
            continue
        if key == "sampling":
            table["sampling"] = next(name for name, kind in SAMPLERS.items() if type(value) is kind)
            if getattr(value, "size", None) is not None:
                table["sample_size"] = value.size.to_dict()
            if isinstance(value, Poisson):
                table["sample_rate"] = value.rate
                table |= {} if value.cap is None else {"sample_cap": value.cap}
        elif isinstance(value, tuple) and not isinstance(value[0], Schedule):
            table[key] = list(value)
        elif isinstance(value, tuple):
            same = all(part == value[0] for part in value)
            table[key] = value[0].to_dict() if same else [part.to_dict() for part in value]
        else:
            table[key] = value.to_dict() if isinstance(value, Schedule) else value
    return table

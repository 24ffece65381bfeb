"""The configuration of a run, and what it takes to run it again: two sections of a page
(templates/configuration.html and reproduction.html).
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from hearsay._version import VERSION
from hearsay.report.numbers import who
from hearsay.schedules import Schedule

if TYPE_CHECKING:
    from hearsay.base import Algorithm
    from hearsay.simulation.result import Run

_LINES = 20  # different schedules of one option that a page shows
_LONGEST = 20_000  # characters of code


def configuration(algorithm: Algorithm) -> dict[str, object]:
    """Every field of the algorithm; schedules as formulas in the step k."""
    options = [_option(name, value) for name, value in _given(algorithm).items()]
    return {"caption": f"{algorithm.name}, as it ran", "options": options}


def _given(algorithm: Algorithm) -> dict[str, object]:
    """Pages of runs without secrets do not speak of them."""
    return {k: v for k, v in algorithm.options.items() if not (k == "secrets" and v is None)}


def _option(name: str, value: object) -> dict[str, object]:
    """A schedule by its formula, one line for each group of agents that share one."""
    if not (isinstance(value, tuple) and value and all(isinstance(v, Schedule) for v in value)):
        return {"name": name, "value": str(value), "laws": [], "more": 0}
    groups: dict[str, list[int]] = {}
    for agent, schedule in enumerate(value):
        groups.setdefault(str(schedule), []).append(agent)
    laws = [(law, who(agents, len(value))) for law, agents in groups.items()]
    more = max(0, len(laws) - _LINES)
    return {"name": name, "value": None, "laws": laws[:_LINES], "more": more}


def reproduction(run: Run) -> dict[str, object]:
    """A call that repeats the run, and fingerprints of data and weights."""
    steps, seeds = int(run.certificate.horizon), run.seeds
    every = int(np.diff(run.steps).max()) if len(run.steps) > 1 else 1
    extra = "" if run.certificate.delta is None else f", delta={run.certificate.delta!r}"
    extra += "" if run.faults is None else f", faults={run.faults!r}"
    wide = run.models.dtype == np.float64
    code = (
        "import jax\nfrom hearsay import *\n\n"
        + f'jax.config.update("jax_enable_x64", {wide})\n'
        + f"algorithm = {_written(run.algorithm)}\n"
        + f"run = simulate(algorithm, problem, graph, steps={steps}, seeds={_seeds(seeds)},"
        f" every={every}{extra})"
    )
    problem, graph = run.problem, run.graph
    lead = (
        f"With the problem “{problem.name}” ({problem.agents} agents) and the “{graph.name}” graph"
        " whose fingerprints are below, and agents that start at the origin (spread=0), this call"
        " repeats the run."
    )
    facts = [
        ("Seeds", ", ".join(map(str, seeds))),
        ("Precision", str(run.models.dtype)),
        ("Software", software()),
    ]
    prints = [("Data", problem.records.digest()), ("Weights", graph.digest())]
    return {
        "lead": lead,
        "code": code,
        "fingerprints": [(name, f"sha256 {digest[:32]}") for name, digest in prints],
        "facts": facts,
    }


def software() -> str:
    return (
        f"hearsay {VERSION}, jax {jax.__version__}, numpy {np.__version__}, Python"
        f" {platform.python_version()}"
    )


def _written(algorithm: Algorithm) -> str:
    """As code that makes it; schedules of very many agents would fill the page."""
    options = ", ".join(f"{name}={value!r}" for name, value in _given(algorithm).items())
    text = f"{algorithm.name.replace('-', '_')}({options})"
    return (
        text if len(text) <= _LONGEST else f"...  # repr(run.algorithm), {len(text):,} characters"
    )


def _seeds(seeds: Sequence[int]) -> str:
    return str(len(seeds)) if list(seeds) == list(range(len(seeds))) else repr(list(seeds))

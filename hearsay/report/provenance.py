"""The configuration of a run, and what it takes to run it again."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from hearsay._version import VERSION
from hearsay.report.numbers import who
from hearsay.report.page import Html, facts, join, section, table, tag
from hearsay.schedules import Schedule

if TYPE_CHECKING:
    from hearsay.base import Algorithm
    from hearsay.simulation.result import Run

_LINES = 20  # different schedules of one option that a page shows
_LONGEST = 20_000  # characters of code


def configuration(run: Run) -> Html:
    """Every field of the algorithm; schedules as formulas in the step k."""
    rows = [(name, _setting(value)) for name, value in run.algorithm.options.items()]
    lead = tag("p", "Schedules are functions of the step k = 0, 1, 2, …")
    return section(
        "Configuration", lead, table(f"{run.algorithm.name}, as it ran", ("option", "value"), rows)
    )


def reproduction(run: Run) -> Html:
    """A call that repeats the run, and fingerprints by which to know the same data and weights."""
    steps, seeds = int(run.certificate.horizon), run.seeds
    every = int(np.diff(run.steps).max()) if len(run.steps) > 1 else 1
    extra = "" if run.certificate.delta is None else f", delta={run.certificate.delta!r}"
    wide = run.models.dtype == np.float64
    code = (
        "import jax\nfrom hearsay import *\n\n"
        + f'jax.config.update("jax_enable_x64", {wide})\n'
        + f"algorithm = {_written(run.algorithm)}\n"
        + f"run = simulate(algorithm, problem, graph, steps={steps}, seeds={_seeds(seeds)},"
        f" every={every}{extra})"
    )
    same = [
        ("Data", _shown(run.problem.records.digest())),
        ("Weights", _shown(run.graph.digest())),
        ("Seeds", ", ".join(map(str, seeds))),
        ("Precision", str(run.models.dtype)),
        (
            "Software",
            (
                f"hearsay {VERSION}, jax {jax.__version__}, numpy {np.__version__}, Python"
                f" {platform.python_version()}"
            ),
        ),
    ]
    lead = tag(
        "p",
        f"With the problem “{run.problem.name}” ({run.problem.agents} agents) and the"
        f" “{run.graph.name}” graph whose fingerprints are below, and agents that start at the"
        " origin (spread=0), this call repeats the run.",
    )
    return section("How to reproduce", lead, tag("pre", tag("code", code)), facts(same))


def _written(algorithm: Algorithm) -> str:
    """As code that makes it; schedules of very many agents would fill the page."""
    options = ", ".join(f"{name}={value!r}" for name, value in algorithm.options.items())
    text = f"{algorithm.name.replace('-', '_')}({options})"
    return (
        text if len(text) <= _LONGEST else f"...  # repr(run.algorithm), {len(text):,} characters"
    )


def _setting(value: object) -> Html:
    """A schedule by its formula, one line for each group of agents that share one."""
    if not (isinstance(value, tuple) and value and all(isinstance(v, Schedule) for v in value)):
        return tag("code", str(value))
    groups: dict[str, list[int]] = {}
    for agent, schedule in enumerate(value):
        groups.setdefault(str(schedule), []).append(agent)
    lines = [
        tag("div", tag("code", law), " ", tag("span", who(a, len(value)), class_="soft"))
        for law, a in list(groups.items())[:_LINES]
    ]
    more = len(groups) - _LINES
    return join([*lines, tag("div", f"… and {more:,} more", class_="soft") if more > 0 else ""])


def _seeds(seeds: Sequence[int]) -> str:
    return str(len(seeds)) if list(seeds) == list(range(len(seeds))) else repr(list(seeds))


def _shown(digest: str) -> Html:
    return tag("code", f"sha256 {digest[:32]}")

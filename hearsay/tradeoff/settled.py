"""A configuration that names no algorithm, with the settings of a rehearsal written in.

    [problem]    the clip, no ridge unless one is given, all records there from the start unless
                 `head_start` or `per_step` say that they arrive
    [graph]      the usual one unless one is given
    [algorithm]  gradient perturbation with its steps, exchanges and batches; the noise is what
                 epsilon in [privacy] calibrates
    [secrets]    the ratio, where noise is shared
    [run]        steps, and which average of messages is released

What comes out runs by itself, with no rehearsal: `hearsay run --config` repeats it.
"""

from __future__ import annotations

import inspect
from typing import Any

from hearsay import _validate as require
from hearsay.config import DELTA, FIRST_EPSILON, Config, build_graph, build_secrets, loss_of
from hearsay.graphs import Graph
from hearsay.graphs.secrets import Secrets
from hearsay.problems import PROBLEMS
from hearsay.problems.task import Task
from hearsay.schedules import Constant, Schedule
from hearsay.tradeoff import rule
from hearsay.tradeoff.choices import COUPLING, Choice
from hearsay.tradeoff.rehearsing import Progress, Rehearsal, rehearse

# Keys with which somebody has said that records arrive round by round.
_ARRIVING = ("per_step", "head_start")


def unsettled(config: Config) -> bool:
    """It says nothing of how to learn: no algorithm, no rounds."""
    return not config.algorithm and "steps" not in config.run


def arriving(config: Config) -> bool:
    """It says when records arrive."""
    return any(key in config.problem for key in _ARRIVING)


def rehearsable(task: Task) -> bool:
    """One for which there are settings to choose."""
    return not task.endless and rule.travels(task) and task.declared is None


def described(config: Config, agents: int | None = None) -> Config:
    """The configuration with what a rehearsal takes for granted, where nothing is said of it."""
    usual: dict[str, Any] = {}
    if loss_of(config) in ("logistic", "softmax") and "ridge" not in config.problem:
        # The noise ends training before weights grow: a penalty on them only costs accuracy.
        usual["problem"] = {"ridge": 0.0}
    if not config.graph and agents is not None:
        few = {"kind": "complete"} if agents <= 10 else {"kind": "random", "degree": 6}
        usual["graph"] = few
    privacy = config.privacy
    usual["privacy"] = {
        "epsilon": privacy.get("epsilon", FIRST_EPSILON),
        "delta": privacy.get("delta", DELTA),
    }
    return config.merged(usual)


def settled(
    config: Config,
    task: Task,
    graph: Graph | None = None,
    progress: Progress | None = None,
    *,
    follow: bool = False,
) -> tuple[Config, Rehearsal]:
    """(the configuration with settings written in, the rehearsal that chose them).

    Args:
      config: as `described` leaves it.
      task: what is public of its problem.
      graph: who hears whom; as the configuration has it unless given.
      progress: as for `rehearse`.
      follow: records arrive, whether the configuration says when or not.
    """
    graph = build_graph(config, task.agents) if graph is None else graph
    found = rehearse(
        task,
        graph,
        config.privacy["epsilon"],
        delta=config.privacy["delta"],
        colluders=_colluders(build_secrets(config)),
        arriving=follow or arriving(config),
        progress=progress,
    )
    return written(config, found), found


def written(config: Config, rehearsal: Rehearsal) -> Config:
    """The configuration with what was chosen."""
    choice = rehearsal.choice
    taken = inspect.signature(PROBLEMS[loss_of(config)]).parameters
    problem: dict[str, Any] = {"clip": choice.clip}
    if "head_start" in taken and choice.begun is None:
        problem["head_start"] = rehearsal.task.most
    found = config.merged(
        {
            "problem": problem,
            "algorithm": algorithm_table(choice),
            "run": {"steps": choice.rounds, "release": choice.readout},
            "secrets": {} if choice.colluders is None else {"ratio": choice.ratio},
        }
    )
    return found


def algorithm_table(choice: Choice) -> dict[str, Any]:
    """As [algorithm] has it."""
    batches: dict[str, Any] = {"sampling": "history"}
    if choice.rate < 1:
        batches = {"sampling": "poisson", "sample_rate": choice.rate}
    exchanges: dict[str, Any] = {"averaging": choice.averaging} if choice.averaging else {}
    exchanges |= {"chebyshev": True} if choice.chebyshev else {}
    name = "gradient-perturbation" if choice.weights is None else "weighted-erm"
    shares = {} if choice.weights is None else {"weights": list(choice.weights)}
    return {
        "name": name,
        **shares,
        "step": _written(choice.steps),
        "coupling": COUPLING,
        "noise": _written(choice.fading),
        "mechanism": "gaussian",
        **batches,
        **exchanges,
    }


def _written(schedule: Schedule) -> float | dict[str, Any]:
    return schedule.value if isinstance(schedule, Constant) else schedule.to_dict()


def _colluders(secrets: Secrets | None) -> int | None:
    """Of secrets that are planned in the usual way; others have been settled by somebody."""
    if secrets is None:
        return None
    if secrets != Secrets(secrets.colluders):
        require.fail(
            "[secrets]",
            "colluders alone where settings are rehearsed (name the algorithm otherwise)",
            str(secrets),
        )
    return secrets.colluders

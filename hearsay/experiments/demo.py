"""The demonstration: five hospitals in a ring, with 91 patients each, learn together what none of
them may show to the others, on the breast-cancer data.

It measures what joining buys (tradeoff/): every hospital alone, all together with nobody trusted,
all together with shared secrets and one colluder, and a trusted server, at the same budgets; and it
ends with the model that may be published.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hearsay.config import Config, build_graph, build_problem

if TYPE_CHECKING:
    from hearsay.release.model import ReleasedModel

CONFIG = Config(
    problem={
        "loss": "logistic",
        "data": "breast-cancer",
        "agents": 5,
        "ridge": 0.0,
        "adjacency": "zero-out",
    },
    graph={"kind": "ring"},
    privacy={"epsilon": 2.0, "delta": 1e-5},
)
EPSILONS = (1.0, 2.0, 4.0)
SERIES = ("alone", "secret-batches", "secrets-1", "central", "no-noise")
SPLITS, SEEDS = 20, 2


def release(folder: Path) -> ReleasedModel:
    """Run the network once more at the configuration's epsilon, and write what may be published."""
    from hearsay.tradeoff.measuring import trained
    from hearsay.tradeoff.rehearsal import planned
    from hearsay.tradeoff.rule import prepared
    from hearsay.tradeoff.series import SERIES as KNOWN

    problem = prepared(build_problem(CONFIG))
    graph, delta = build_graph(CONFIG, problem.agents), CONFIG.privacy["delta"]
    at, task = CONFIG.privacy["epsilon"], problem.task
    candidate, algorithm = planned(KNOWN["secret-batches"], task, graph, at, delta)
    # As many seeds as before: the same compiled program.
    run = trained(algorithm, problem, graph, candidate.rounds, range(SEEDS), delta)
    return run.release(folder=folder)

"""Paper P1, section VII-A: online logistic regression on the mushrooms data (Fig. 1 and Table I).

As printed: five agents in a ring with weight 0.3, a ball of radius 1e5, agents 1-3 hold the edible
records and 4-5 the poisonous ones, Laplace noise of scale (t+1)^(0.1 + 0.01 i) on every message
of every method, lambda_t = (t+1)^-0.77, gamma_t = (t+1)^-0.65, 2000 iterations; Table I at 0.1
(t+1)^(0.1 + 0.01 i) times 1 to 6, up to 5000 iterations.

Not printed, and chosen here: records per iteration (1), the ridge ("proportional to 1/N": 0.3,
which brings Table I's iteration counts to the paper's order of magnitude), the random start
(standard normal), the step sizes of the other methods (the best of a sweep over powers of two), C
and L (derived from the data's encoding). Records that have arrived stay in the history; the stream
ends after 1,100 to 1,600 of them per agent.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hearsay import graphs
from hearsay.algorithms import Dsgd, LdpOnline, Pdop
from hearsay.algorithms.baselines.dola import dola
from hearsay.base import Algorithm
from hearsay.certification import certify, spent_after
from hearsay.experiments.common import Progress, complete, conditions, simulate, stepped, swept
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems import Problem, logistic
from hearsay.schedules import Geometric, PowerLaw
from hearsay.simulation.optimum import Reference
from hearsay.simulation.result import Run

LEVELS = (1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6)
PAPER_ITERATIONS = (8, 11, 12, 34, 127, 269, 575, 934, 1119, 2292, 4999)
PAPER_BUDGETS = (23.34, 16.59, 12.65, 11.97, 11.54, 10.50, 9.64, 8.79, 7.98, 7.47, 7.03)
RIDGE = 0.3


def noise(level: float) -> tuple[PowerLaw, ...]:
    return tuple(PowerLaw(level, 0.1 + 0.01 * i) for i in range(1, 6))


def problem_and_graph(data_dir: str | None) -> tuple[Problem, Graph]:
    problem = logistic(
        "mushrooms", agents=5, partition="by_label", ridge=RIDGE, radius=1e5, data_dir=data_dir
    )
    return problem, graphs.ring(5, weight=0.3)


def algorithms() -> dict[str, Algorithm]:
    """All with the same noise, as in Fig. 1;
    the step scales of the last three are set by `tuned`.
    """
    return {
        "ldp-online": LdpOnline(
            step=PowerLaw(1.0, -0.77), coupling=PowerLaw(1.0, -0.65), noise=noise(1.0)
        ),
        "dsgd": Dsgd(step=PowerLaw(1.0, -0.77), noise=noise(1.0)),
        "dola": dola(step=PowerLaw(1.0, -0.5), noise=noise(1.0)),
        "pdop": Pdop(step=Geometric(1.0, 0.999), noise=noise(1.0)),
    }


def figure_1(
    problem: Problem, graph: Graph, steps: int, seeds: int, reference: Reference, progress: Progress
) -> tuple[dict[str, Run], list[str]]:
    runs, notes = {}, []
    for index, (name, algorithm) in enumerate(algorithms().items()):
        if name != "ldp-online":
            algorithm, scale = swept(
                stepped(algorithm, range(-9, 5)), problem, graph, steps, reference, spread=1.0
            )
            notes.append(
                f"{name}: best step size {algorithm.step_size} (scale {scale:g} from a sweep over"
                " powers of two)"
            )
        runs[name] = complete(
            simulate(
                algorithm, problem, graph, steps=steps, seeds=seeds, reference=reference, spread=1.0
            )
        )
        progress("Fig. 1", index + 1, 4)
    return runs, notes


def table_1(
    problem: Problem, graph: Graph, steps: int, seeds: int, reference: Reference, progress: Progress
) -> list[list[str]]:
    """Iterations until the agents' mean model is within 1 of the optimum, per noise level,
    with the budgets spent by then.
    """
    rows = []
    for index, level in enumerate(LEVELS):
        algorithm = LdpOnline(
            step=PowerLaw(1.0, -0.77), coupling=PowerLaw(1.0, -0.65), noise=noise(0.1 * level)
        )
        run = complete(
            simulate(
                algorithm,
                problem,
                graph,
                steps=steps,
                seeds=seeds,
                every=1,
                reference=reference,
                regret=False,
                spread=1.0,
            )
        )
        error = run.metrics["mean_model_error"].mean(axis=1)
        reached = np.nonzero(error <= 1.0)[0]
        when = int(reached[0]) if len(reached) else None
        spent = spent_after(algorithm, problem, graph, [when or steps]).max()
        forever = max(certify(algorithm, problem, graph, float("inf")).epsilon)
        rows.append(
            [
                f"x{level:g}",
                str(PAPER_ITERATIONS[index]),
                str(when) if when is not None else f"> {steps} (at {error[-1]:.3f})",
                f"{PAPER_BUDGETS[index]:.2f}",
                show(float(spent)),
                show(forever),
            ]
        )
        progress("Table I", index + 1, len(LEVELS))
    return rows


def reproduce(
    folder: Path, *, data_dir: str | None, seeds: int, scale: float, progress: Progress
) -> Path:
    """Run the experiment and write folder/report.html, with one sub-folder per run."""
    from hearsay.report.comparison import comparison_report

    problem, graph = problem_and_graph(data_dir)
    reference = Reference(problem)
    steps, long = max(20, round(2000 * scale)), max(20, round(5000 * scale))
    runs, sweep = figure_1(problem, graph, steps, seeds, reference, progress)
    for name, run in runs.items():
        run.save(folder / name)
    rows = table_1(problem, graph, long, seeds, reference, progress)
    header = [
        "noise",
        "iterations (paper)",
        "iterations (ours)",
        "budget (paper)",
        "certified ε by then",
        "certified ε for ever",
    ]
    table = (
        "Table I: iterations until the mean model is within 1 of the running optimum",
        header,
        rows,
    )
    return comparison_report(
        runs,
        folder,
        "Paper P1: mushrooms (Fig. 1 and Table I)",
        notes=_notes(problem, graph, sweep),
        tables=[
            table,
            conditions(
                "The paper's conditions for its own settings",
                algorithms()["ldp-online"].theory(graph, problem),
            ),
        ],
    )


def _notes(problem: Problem, graph: Graph, sweep: list[str]) -> list[str]:
    smallest = graph.coupling_eigenvalues[1]
    low, high = problem.loss.curvature
    return [
        "Every method adds the same Laplace noise to every message, as in Fig. 1. "
        + "; ".join(sweep)
        + ". With these steps two states of dsgd and dola are thrown apart for many steps (step x L"
        " is far above 1), so their certified budgets explode; smaller steps would cost less and"
        " track worse.",
        (
            "Budgets differ from the paper's because it does not give its C and L. Here they are"
            f" derived from the encoding: a record is 22 ones among {problem.dimension} columns, so"
            f" C = 2 sqrt(22) = {problem.change:.3g} and the curvature lies in [{low:.3g},"
            f" {high:.3g}]. The printed first steps (lambda_0 = 1) are far above 2/L ="
            f" {2 / high:.3g} and spread two states apart before they pull them together, which"
            " dominates the certified budget. The paper's 23.34 at noise x1 would need a C near"
            f" {problem.change * 23.34 / _epsilon_at_one(problem, graph):.2g}."
        ),
        (
            "The paper's formula (20) with the same C and L is astronomically larger than the"
            " certified budget: it drops the 1/(t+1) of the history and multiplies by 1 - w gamma +"
            " lambda L where the true factor is max(|1 - w gamma - lambda mu|, |1 - w gamma -"
            " lambda L|)."
        ),
        (
            "The paper says that its settings satisfy Theorems 1-5. They do not: a ring with"
            f" weight 0.3 has smallest eigenvalue {smallest:.3f}, below the -1 of Assumption 2; its"
            " fifth agent's noise exponent 0.15 makes noise exponent + 1/2 < u an equality (0.65),"
            " so that the promised rate is zero; and Theorem 1 asks for gamma_0 <="
            f" {-1 / (3 * smallest):.3f} where the experiment uses 1. Theorem 3 applies to any"
            " lambda_0 and gamma_0, but from a step t0 far beyond the experiment. The method"
            " converges all the same, as the curves show."
        ),
        (
            "Chosen here because the paper does not say: one record per agent and iteration, ridge"
            f" {RIDGE}, a standard normal start. After an agent's records have all arrived it goes"
            " on with the full history; the finite-horizon budgets count that, the"
            " infinite-horizon ones assume that the stream goes on."
        ),
    ]


def _epsilon_at_one(problem: Problem, graph: Graph) -> float:
    algorithm = LdpOnline(
        step=PowerLaw(1.0, -0.77), coupling=PowerLaw(1.0, -0.65), noise=noise(0.1)
    )
    return max(certify(algorithm, problem, graph, 2000).epsilon)

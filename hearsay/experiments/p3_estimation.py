"""Paper P3, section V: distributed parameter estimation (Figs. 1-4 and the printed budgets).

As printed: six sensors, six parameters, x* = 1/2 in every coordinate, regressors u ~ N(0, R) with
the printed R, everybody starts at [3, 1, 1, 3, 3, 1], C = 0.2 and

    output      alpha_k = 0.5 (k+1)^-0.9,  beta_k = 0.5 (k+1)^-0.6,
                gamma_k = ceil((k+1)^1.1),  sigma_k = (k+1)^0.05     "epsilon about 0.864"
    gradient    alpha_k = 0.5 (k+1)^-0.8,  beta_k = 0.5 (k+1)^-0.5,
                gamma_k = ceil((k+1)^1.2),  sigma_k = (k+1)^0.1      "epsilon about 0.488"

Not printed, and chosen here: the graph (a ring, weights 1/3), the variance of the measurements (1),
the number of iterations (2000, which the printed 0.488 points to), and all settings of the other
methods: for Figs. 3 and 4 the same noise, a step of 0.01 and batches of 50, which is how the paper
sets up its comparison on MNIST.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hearsay import graphs
from hearsay.algorithms import Adp2sgd, GradientPerturbation, OutputPerturbation, SdmDsgd
from hearsay.algorithms.baselines.dola import dola
from hearsay.certification import calibrate, certify
from hearsay.experiments.common import (
    Progress,
    Table,
    complete,
    conditions,
    save_tables,
    simulate,
    stepped,
    swept,
)
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems import Problem, estimation
from hearsay.problems.sampling.samplers import Fresh, Subset
from hearsay.schedules import Constant, PowerLaw, SampleSize
from hearsay.simulation.optimum import Reference
from hearsay.simulation.result import Run

PAPER = {"output": 0.864, "gradient": 0.488}
# The other methods; any 50 records, so that the budget counts every step, as the paper's does.
BATCH = Subset(SampleSize(Constant(50.0)))


def problem_and_graph() -> tuple[Problem, Graph]:
    """With the paper's C and its adjacency, in which the sampled gradients
    are the data (`frozen`).
    """
    return estimation(frozen=True), graphs.ring(6)


def forms(sampler: Any = Subset) -> dict[str, Any]:
    """Both configurations.

    The paper's sums count a record as part of every batch (Subset);
    on a stream each is used once (Fresh).
    """
    return {
        "output": OutputPerturbation(
            step=PowerLaw(0.5, -0.9),
            coupling=PowerLaw(0.5, -0.6),
            noise=PowerLaw(1.0, 0.05),
            sampling=sampler("(k+1)^1.1"),
        ),
        "gradient": GradientPerturbation(
            step=PowerLaw(0.5, -0.8),
            coupling=PowerLaw(0.5, -0.5),
            noise=PowerLaw(1.0, 0.1),
            sampling=sampler("(k+1)^1.2"),
        ),
    }


def others(form: Any) -> dict[str, Any]:
    """What the paper compares each form with, under the same noise."""
    shared: dict[str, Any] = {
        "step": Constant(0.01),
        "noise": form.noise,
        "mechanism": "laplace",
        "sampling": BATCH,
    }
    first: Any = dola(**shared) if form.name == "output-perturbation" else Adp2sgd(**shared)
    return {first.name: first, "sdm-dsgd": SdmDsgd(**shared)}


def figures_1_3_4(
    problem: Problem, graph: Graph, steps: int, seeds: int, progress: Progress
) -> dict[str, Run]:
    runs, reference = {}, Reference(problem)
    wanted = forms(Fresh)
    for key, form in forms().items():
        wanted |= {f"{name} (noise of {key})": other for name, other in others(form).items()}
    for index, (name, algorithm) in enumerate(wanted.items()):
        runs[name] = complete(
            simulate(algorithm, problem, graph, steps=steps, seeds=seeds, reference=reference)
        )
        progress("Figs. 1, 3, 4", index + 1, len(wanted))
    return runs


def figure_2(problem: Problem, graph: Graph, points: int, progress: Progress) -> dict[str, tuple]:
    """epsilon for ever over the exponents of the noise (eta) and of the sample size (gamma)."""
    eta, gamma = np.linspace(0.0, 0.2, points), np.linspace(1.1, 1.7, points)
    found = {}
    for index, (name, form) in enumerate(forms().items()):
        values = np.full((points, points), math.inf)
        for j, growth in enumerate(gamma):
            for i, power in enumerate(eta):
                option = replace(
                    form, noise=PowerLaw(1.0, power), sampling=Subset(PowerLaw(1.0, growth))
                )
                values[j, i] = certify(option, problem, graph, math.inf).epsilon[0]
            progress("Fig. 2", index * points + j + 1, 2 * points)
        found[name] = (eta, gamma, values)
    return found


def budgets(problem: Problem, graph: Graph, steps: int) -> Table:
    rows = []
    for name, form in forms().items():
        every, once = (
            [certify(f[name], problem, graph, h).epsilon[0] for h in (steps, math.inf)]
            for f in (forms(), forms(Fresh))
        )
        paper = form.paper_epsilon(graph, 0, problem, steps)
        rows.append([name, f"{PAPER[name]:g}", show(paper), *map(show, (*every, *once))])
    header = [
        "form",
        "printed",
        f"its formula, {steps:,} steps",
        f"ours, every step, {steps:,}",
        "for ever",
        f"ours, once, {steps:,}",
        "for ever",
    ]
    return (
        (
            "ε under the paper's declarations. Every step: a record may be in every batch. Once:"
            " each record of a stream is in one"
        ),
        header,
        rows,
    )


def enforced(graph: Graph, steps: int, seeds: int, progress: Progress) -> Table:
    """Certificates that rest on nothing declared: every record's gradient is clipped;
    the output form needs bounded regressors and small steps too.
    """
    output, gradient = forms(Fresh).values()
    slow = replace(output, step=PowerLaw(0.0625, -0.9))
    cases = {
        "gradient, C = 0.2 declared": (gradient, estimation()),
        "gradient, clip 0.1": (gradient, estimation(clip=0.1)),
        "gradient, clip 1": (gradient, estimation(clip=1.0)),
        "gradient, clip 10": (gradient, estimation(clip=10.0)),
        "output, clip 1, |u| <= 4": (output, estimation(clip=1.0, feature_bound=4.0)),
        "output, clip 1, |u| <= 4, step / 8": (slow, estimation(clip=1.0, feature_bound=4.0)),
    }
    rows = []
    for index, (name, (form, problem)) in enumerate(cases.items()):
        printed = certify(form, problem, graph, math.inf).epsilon[0]
        ready = calibrate(form, problem, graph, math.inf, 1.0)
        run = complete(simulate(ready, problem, graph, steps=steps, seeds=seeds, every=steps))
        rows.append([name, show(printed), str(ready.noise_for(0)), _final(run)])
        progress("enforced", index + 1, len(cases))
    header = [
        "form and bound on one record",
        "ε for ever at the printed noise",
        "noise for ε = 1",
        f"squared error at ε = 1 after {steps:,} steps",
    ]
    return (
        "What a bound that the code enforces costs (a stream, each record used once)",
        header,
        rows,
    )


def beyond(
    problem: Problem, graph: Graph, steps: int, seeds: int, progress: Progress
) -> list[Table]:
    """Own-noise feedback and averaged read-out at the same epsilon."""
    printed, gradient = forms()["output"], forms()["gradient"]
    target = certify(printed, problem, graph, steps).epsilon[0]
    feedback = replace(printed, feedback=True)
    cases = {
        "output, as printed": printed,
        "output, feedback at the same ε": calibrate(feedback, problem, graph, steps, target),
        "output, feedback at the same noise": feedback,
        "output, as printed, averaged read-out": replace(printed, average=True),
        "gradient, as printed": gradient,
        "gradient, averaged read-out": replace(gradient, average=True),
    }
    rows = []
    for index, (name, algorithm) in enumerate(cases.items()):
        run = complete(simulate(algorithm, problem, graph, steps=steps, seeds=seeds, every=steps))
        error = "mean_model_error"
        rows.append(
            [
                name,
                show(max(run.certificate.epsilon)),
                str(algorithm.noise_for(0)),
                _final(run),
                f"{run.final(error)[0] ** 2:.3g}",
            ]
        )
        progress("beyond", index + 1, len(cases))
    header = [
        "form",
        "ε (paper's declarations)",
        "noise",
        f"squared error after {steps:,} steps",
        "of the mean model",
    ]
    return [
        ("Own-noise feedback, with and without", header, rows[:3]),
        ("Averaged read-out, with and without: it costs nothing", header, [rows[0], *rows[3:]]),
    ]  # fmt: skip


def equal_budgets(
    problem: Problem, graph: Graph, steps: int, seeds: int, progress: Progress
) -> Table:
    """All methods at epsilon = 1 after `steps` messages, each with its best step scale out of a
    sweep over powers of two.
    """
    rows, reference = [], Reference(problem)
    methods = {**forms(), **others(forms()["output"]), **others(forms()["gradient"])}
    for index, (name, algorithm) in enumerate(methods.items()):
        ready = {
            scale: calibrate(option, problem, graph, steps, 1.0)
            for scale, option in stepped(algorithm, range(-2, 3)).items()
        }
        best, _ = swept(ready, problem, graph, steps, reference)
        run = complete(
            simulate(
                best, problem, graph, steps=steps, seeds=seeds, every=steps, reference=reference
            )
        )
        records = float(np.sum(best.sampling.sizes(np.arange(steps), problem.arrivals)))
        rows.append(
            [
                name,
                show(max(run.certificate.epsilon)),
                str(best.step),
                str(best.noise_for(0)),
                f"{records:,.0f}",
                _final(run),
            ]
        )
        progress("equal budgets", index + 1, len(methods))
    header = [
        "method",
        "ε (paper's declarations)",
        "step (best of a sweep)",
        "noise",
        "records per agent",
        f"squared error after {steps:,} steps",
    ]
    return "Every method at the same budget", header, rows


def reproduce(
    folder: Path, *, data_dir: str | None, seeds: int, scale: float, progress: Progress
) -> Path:
    """Run the experiment and write folder/report.html, with one sub-folder per run."""
    from hearsay.report import plots
    from hearsay.report.comparison import comparison_report
    from hearsay.report.plot_style import new_figure

    problem, graph = problem_and_graph()
    steps, points = max(20, round(2000 * scale)), max(3, round(9 * scale))
    runs = figures_1_3_4(problem, graph, steps, seeds, progress)
    for name, run in runs.items():
        run.save(folder / name)
    figures = []
    for name in PAPER:
        figure, ax = new_figure()
        plots.agents(runs[name], ax)
        figures.append(
            (f"Fig. 1, {name} form: every agent's squared error, mean over {seeds} seeds.", figure)
        )
    for name, (eta, gamma, values) in figure_2(problem, graph, points, progress).items():
        figure, ax = new_figure()
        plots.surface(
            eta,
            gamma,
            values,
            ("eta, exponent of the noise", "gamma, exponent of the sample size"),
            ax,
        )
        figures.append((f"Fig. 2, {name} form: epsilon for ever, a record in every batch.", figure))
    for number, name in ((3, "output"), (4, "gradient")):
        figure, ax = new_figure()
        plots.compare(
            {k: r for k, r in runs.items() if k == name or k.endswith(f"{name})")},
            "tracking_error",
            ax,
        )
        figures.append(
            (
                (
                    f"Fig. {number}: the {name} form against the existing methods, the same noise"
                    " for all."
                ),
                figure,
            )
        )
    feedback, average = beyond(problem, graph, steps, seeds, progress)
    measured = {
        "budgets": budgets(problem, graph, steps),
        "feedback": feedback,
        "average": average,
        "equal-budgets": equal_budgets(problem, graph, steps, seeds, progress),
        "enforced": enforced(graph, steps, seeds, progress),
    }
    save_tables(folder, measured)
    tables = [
        *measured.values(),
        *(
            conditions(
                f"The paper's conditions for its {n} configuration", f.theory(graph, problem)
            )
            for n, f in forms().items()
        ),
    ]
    return comparison_report(
        runs,
        folder,
        "Paper P3: parameter estimation (Figs. 1-4)",
        notes=_notes(problem, graph),
        tables=tables,
        figures=figures,
    )


def _final(run: Run) -> str:
    return "{:.3g} ± {:.1g}".format(*run.final("tracking_error"))


def _notes(problem: Problem, graph: Graph) -> list[str]:
    output, gradient = forms().values()
    forever = [certify(f, problem, graph, math.inf).epsilon[0] for f in (output, gradient)]
    long = [certify(f, problem, graph, 2000).epsilon[0] for f in (output, gradient)]
    lemma, theorem = (f.paper_epsilon(graph, 0, problem, 2000) for f in (output, gradient))
    # Lemma 1's second line alone, that is without the message k = 1 too.
    dropped = [output.paper_epsilon(graph, 0, problem, h) - 0.1 / 2**0.05 for h in (2000, 200_000)]
    return [
        (
            "The printed 0.488 is the sum over k = 1 .. 2000 of C / (gamma_k sigma_k),"
            f" {theorem:.4f}, not the infinite one: that is {forever[1] - 0.2:.4f}, and"
            f" {forever[1]:.4f} with the gradient of k = 0, which the paper's sum leaves out. Ours:"
            f" {long[1]:.4f} for 2000 steps and {forever[1]:.4f} for ever."
        ),
        (
            "The printed 0.864 cannot be reproduced exactly. Lemma 1 drops the last term of its"
            f" sum (l = k - 1); with it the budget is {long[0]:.4f} for 2000 steps and"
            f" {forever[0]:.4f} for ever. As printed the formula gives {lemma:.4f} for 2000 steps;"
            f" leaving out the message k = 1 as well it gives {dropped[0]:.4f}, and"
            f" {dropped[1]:.4f} for 200,000, which is the nearest reading."
        ),
        (
            "All of these take a record to be part of every batch. On a stream each record is used"
            " once, and the budget is the largest price of one use. The curves are those of a"
            " stream."
        ),
        (
            "These numbers rest on the paper's declarations. C = 0.2 is its word: nothing bounds a"
            " Gaussian record. And in its adjacency the sampled gradients are the data, so all"
            " other gradients are the same in both runs. For the gradient form that makes no"
            " difference, because gradients are taken at points that the messages reveal anyway."
            " For the output form it does: later gradients are taken at states that the record has"
            " moved, and no finite budget holds for Gaussian records at all. One table below shows"
            " certificates that rest on nothing declared."
        ),
        (
            "The paper's output configuration does not satisfy its own Theorem 4, which asks for"
            " eta <= (3 beta - 2)/2 = -0.1: no rate is promised, though the error falls. Own-noise"
            " feedback cuts the error at the same noise but pays for it with a state that no longer"
            " contracts: at the same budget it loses, here by far."
        ),
        (
            "Not printed and chosen here: the graph (a ring with weights 1/3), the measurements'"
            " variance (1), the settings of the other methods (step 0.01, batches of 50, the same"
            " noise; for the table at equal budgets the best step of a sweep)."
        ),
    ]

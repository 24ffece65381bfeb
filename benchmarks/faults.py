"""What a network that fails does to learning: curves and a table for docs/faults.md.

    python -m benchmarks.faults [--steps 600] [--seeds 5] [--out docs/results]

Every method keeps its noise, whatever goes wrong: what changes is who hears whom, and the budget
that the certificate of a lossy graph says. Gradient tracking runs although it cannot do without a
message (`unfit`). Writes faults.png and faults.txt.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import numpy as np

import hearsay as hs
from hearsay.base import Algorithm
from hearsay.report.numbers import quantity
from hearsay.report.plot_style import new_figure, styled
from hearsay.simulation.result import Run

AGENTS = 20
FAULTS = {
    "nothing lost": None,
    "20 % lost": {"loss": 0.2},
    "20 % lost in bursts of 10": {"loss": 0.2, "burst": 10.0},
    "40 % lost": {"loss": 0.4},
    "asleep a fifth of the time": {"asleep": 0.2, "nap": 20.0},
    "late by 0 to 3 rounds": {"latency": (0, 3)},
    "10 % leave per 100 rounds": {"churn": 0.1, "away": 50.0},
}
SHOWN = ("nothing lost", "20 % lost", "40 % lost", "10 % leave per 100 rounds")


def methods() -> dict[str, Algorithm]:
    """With noise that leaves room to see what faults do."""
    batch = hs.Cyclic(20)
    return {
        "P1 as printed": hs.ldp_online(noise=0.1),
        "P1 with feedback": hs.ldp_online(noise=0.1, feedback=True),
        "P2 gradient tracking": hs.gradient_tracking(
            step=0.1, coupling=0.8, tracking=0.8, noise=0.01, sampling=batch
        ),
        "P3 output": hs.output_perturbation(
            step="0.5*(k+1)^-0.6", noise=0.1, feedback=True, sampling=batch
        ),
        "P3 gradient": hs.gradient_perturbation(step="0.5*(k+1)^-0.6", noise=0.1, sampling=batch),
    }


def measured(algorithm: Algorithm, options: dict | None, steps: int, seeds: int) -> Run:
    """Agents that hold different digits: who is not heard is missed."""
    problem = hs.problems.logistic(
        "digits", agents=AGENTS, partition="by_label", ridge=0.05, head_start=2000
    )
    graph = hs.graphs.random(AGENTS, degree=4, seed=1)
    unfit = "tracker" in algorithm.channels
    faults = None if options is None else hs.Faults(**options, unfit=unfit, seed=1)
    return hs.simulate(
        algorithm,
        problem,
        graph,
        steps=steps,
        seeds=seeds,
        regret=False,
        release=None,
        faults=faults,
    )


def drawn(found: dict[str, dict[str, Run]], path: Path) -> None:
    with styled():
        figure, _ = new_figure(9.0, 5.2)
        figure.clear()
        axes = figure.subplots(2, 3, sharex=True, sharey=True).ravel()
        for ax, (name, runs) in zip(axes, found.items(), strict=False):
            for fault in SHOWN:
                run = runs[fault]
                error = run.metrics["tracking_error"].mean(axis=1)
                ax.plot(run.steps, error, label=fault)
            ax.set(title=name, yscale="log", ylim=(0.05, 3.0))
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        for ax in axes[2:5]:
            ax.set(xlabel="round")
        for ax in axes[[0, 3]]:
            ax.set(ylabel="tracking error")
        axes[2].tick_params(labelbottom=True)
        axes[5].axis("off")
        axes[5].legend(*axes[0].get_legend_handles_labels(), loc="center")
        figure.savefig(path, dpi=90)


def table(found: dict[str, dict[str, Run]]) -> str:
    """Tracking error and accuracy at the end, of every method and fault, what was heard, and the
    budget.
    """
    names = list(found)
    lines = [f"| | heard | {' | '.join(names)} |", f"|---|---:|{'---:|' * len(names)}"]
    for fault in FAULTS:
        runs = [found[name][fault] for name in names]
        heard = 1.0 if runs[0].hearing is None else runs[0].hearing.share
        ends = [(run.final("tracking_error")[0], run.final("accuracy")[0]) for run in runs]
        cells = [f"{quantity(error, 2)} ({100 * right:.0f} %)" for error, right in ends]
        lines.append(f"| {fault} | {100 * heard:.0f} % | {' | '.join(cells)} |")
    for title, fault in (("epsilon, nothing lost", "nothing lost"), ("epsilon, faults", SHOWN[1])):
        cells = [quantity(max(found[name][fault].certificate.epsilon), 3) for name in names]
        lines.append(f"| {title} | | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    found: dict[str, dict[str, Run]] = {}
    for name, algorithm in methods().items():
        found[name] = {}
        for fault, options in FAULTS.items():
            run = found[name][fault] = measured(algorithm, options, given.steps, given.seeds)
            error = run.metrics["tracking_error"].mean(axis=1)
            assert np.isfinite(error[0])
            print(f"{name}, {fault}: {error[-1]:.3g}", flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    drawn(found, given.out / "faults.png")
    text = table(found)
    (given.out / "faults.txt").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()

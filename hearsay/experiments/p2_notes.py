"""What the report on paper P2's convex problems says about its runs and budgets: the values that
data/p2-convex.txt speaks of, and how numbers are written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hearsay import algorithms, graphs
from hearsay.certification import certify
from hearsay.experiments.p2_schemes import (
    AGENT,
    CYCLIC,
    FORMULA,
    HORIZON,
    RECORDS,
    S1,
    S2,
    SETTINGS,
    Curves,
    as_printed,
    declared,
    s1,
    size,
)
from hearsay.experiments.settings import Table
from hearsay.privacy.certificate import show
from hearsay.problems import Problem
from hearsay.problems.sampling.samplers import Subset
from hearsay.simulation.optimum import Reference
from hearsay.simulation.result import Run

Problems = dict[str, Problem]
Runs = dict[str, dict[str, Run]]
Best = dict[str, dict[str, list[Run]]]
KINDS = ("digits", "linear")


def about_budgets(full: Problems, tables: dict[str, Table], curves: Curves) -> dict[str, Any]:
    rows = {row[0]: row for row in tables["budgets-declared"][2]}
    graph, problem, scheme = graphs.five_agents(), declared(), as_printed(Subset)[S1]
    per_agent = [scheme.paper_epsilon(graph, i, problem, HORIZON + 1) or 0.0 for i in range(5)]
    bare = certify(scheme, problem, graph, HORIZON + 1).epsilon[AGENT]
    reaction = {
        kind: certify(scheme, p, graph, HORIZON + 1).epsilon[AGENT]
        / (bare * p.change * p.dimension**0.5)
        for kind, p in full.items()
    }
    top = {
        name: {label: curve.peak for label, curve in lines.items()}
        for name, lines in curves.items()
    }
    return {
        "horizon": HORIZON,
        "records": RECORDS,
        "agent": AGENT,
        "s1": S1,
        "s2": S2,
        "declared": dict(zip(("paper", "every", "cyclic", "period"), rows[S1][1:], strict=True)),
        "formula": {name: row[1] for name, row in rows.items()},
        "reaction": reaction,
        "worst": int(np.argmax(per_agent)),
        "worst_pays": max(per_agent),
        "peaks": SETTINGS["peaks"],
        "top": {name: {"formula": t[FORMULA], "cyclic": t[CYCLIC]} for name, t in top.items()},
        "samples_at_top": size(s1(top["S1"][FORMULA])),
    }


def about_runs(runs: Runs, best: Best, tables: dict[str, Table]) -> dict[str, Any]:
    digits, linear = runs["digits"], runs["linear"]
    rivals = [k for k in list(digits)[6:] if "no noise" not in k]
    cheaper = [
        k
        for k in rivals
        if k != "ternary-dsgd" and all(_cost(r[k]) < _cost(r[S2]) for r in runs.values())
    ]
    ternary, forms = digits["ternary-dsgd"], {row[0]: row for row in tables["two-forms"][2]}
    reached = ternary.steps[ternary.spent.max(axis=1) >= 1]
    both = [tables[name][2] for name in ("conditions-s1", "conditions-s2")]
    pairs = {kind: {"S1": named[S1], "S2": named[S2]} for kind, named in runs.items()}
    return {
        "even": forms["digits, split evenly"],
        "apart": forms["digits, split by label"],
        "last": last_step(runs),
        "accuracy": {name: accuracy(run) for name, run in pairs["digits"].items()},
        "error": {name: error(run) for name, run in pairs["linear"].items()},
        "budget": {
            kind: {name: budget(run) for name, run in pair.items()} for kind, pair in pairs.items()
        },
        "start": _short(float(linear[S1].metrics["tracking_error"].mean(axis=1)[0])),
        "lowest": _lowest(linear[S1]),
        "agrees": all(
            _better(kind, r[S2], r[S1]) and _cost(r[S1]) < _cost(r[S2]) for kind, r in runs.items()
        ),
        "ahead": {
            kind: [k for k in rivals if _better(kind, named[k], named[S2])]
            for kind, named in runs.items()
        },
        "cheaper": cheaper,
        "verdict": _verdict(best),
        "reached": int(reached[0]) if len(reached) else None,
        "ternary_linear": linear["ternary-dsgd"].certificate.slack,
        "failing": [row[0] for rows in both for row in rows if row[1] == "no"],
    }


def about_settings(runs: Runs) -> dict[str, Any]:
    digits = runs["digits"][S2].problem
    best = digits.test_features @ Reference(digits).of(digits.counts).params
    return {
        "right": 100 * np.mean((best > 0) == digits.test_labels),
        "guess": 100 * (runs["digits"][S2].guessing or 0),
        "kept": 1 - SETTINGS["S2"]["step"] * digits.loss.curvature[0],
        "left": 1 - SETTINGS["S2"]["coupling"],
        "weight": SETTINGS["pair"]["weight"],
        "ridge": {kind: SETTINGS[kind]["ridge"] for kind in KINDS},
        "clip": SETTINGS["linear"]["clip"],
        "threshold": SETTINGS["threshold"],
        "grid": algorithms.QuantizedDsgd().resolution,
        "erm_coupling": algorithms.WeightedErm().coupling,
        "held": digits.counts.min(),
        "m": size(runs["digits"][S2].algorithm),
    }


def _verdict(best: Best) -> list[str]:
    """How the better of S1 and S2 stands against the best other method, in words."""
    said = []
    for kind, named in best.items():
        for index in range(2):
            scores = {
                name: _score(kind, runs[index])
                for name, runs in named.items()
                if name != "ternary-dsgd"
            }
            mine = max((S1, S2), key=lambda k: scores[k])
            top = max((k for k in scores if k not in (S1, S2)), key=lambda k: scores[k])
            results = "; ".join(f"{k}: {result(kind, named[k][index])}" for k in (mine, top))
            outcome = "wins" if scores[mine] > scores[top] else "loses"
            said.append(f"{outcome} on {kind} at {budget(named[S2][index])} ({results})")
    return said


def last_step(runs: Runs) -> int:
    return int(runs["digits"][S2].steps[-1])


def _score(kind: str, run: Run) -> float:
    return run.final("accuracy")[0] if kind == "digits" else -run.final("tracking_error")[0]


def _better(kind: str, run: Run, other: Run) -> bool:
    return _score(kind, run) > _score(kind, other)


def _lowest(run: Run) -> int:
    """The step at which the error was smallest."""
    return int(run.steps[np.argmin(run.metrics["tracking_error"].mean(axis=1))])


def _cost(run: Run) -> float:
    return max(run.certificate.epsilon)


def budget(run: Run) -> str:
    slack = run.certificate.slack
    return show(_cost(run)) if slack is None else f"delta = {show(slack)}"


def accuracy(run: Run) -> str:
    return f"{100 * run.final('accuracy')[0]:.1f} %"


def error(run: Run) -> str:
    mean, spread = run.final("tracking_error")
    shown = "0" if spread < 1e-9 * mean else f"{spread:,.0f}" if spread >= 10 else f"{spread:.1g}"
    return f"{_short(mean)} ± {shown}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def result(kind: str, run: Run) -> str:
    return f"{accuracy(run)}, {error(run)}" if kind == "digits" else error(run)

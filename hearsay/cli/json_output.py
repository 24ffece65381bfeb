"""`--json`: one JSON object on standard output, and nothing else there.

A command that is decorated with `answering` has the option. It calls `answer` with what it has
found; when it ends, also with an exit code of its own, that is printed. Whatever it prints for
people meanwhile is dropped; notes, progress and errors go to standard error as always. Infinity,
which JSON does not have, is the word "infinite", as in certificates; what was not measured is null.
Which command has which keys: docs/command-line.md.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import json as library
import math
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hearsay.privacy.certificate import Certificate
from hearsay.privacy.codec import encode
from hearsay.simulation.own_unit import in_own_unit
from hearsay.simulation.worth import worth

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
# What was answered; empty until something is. None: nobody asked.
_answers: ContextVar[list[dict[str, Any]] | None] = ContextVar("answers", default=None)


def answering(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option --json; one with an argument `json` is told whether it was
    given.
    """
    own = inspect.signature(command, eval_str=True)
    told = "json" in own.parameters
    option = inspect.Parameter(
        "json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json
    )
    parameters = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in own.parameters.values()
        if p.name != "json"
    ]

    @functools.wraps(command)
    def wrapper(*, json: bool, **words: Any) -> None:
        words |= {"json": json} if told else {}
        if not json:
            command(**words)
            return
        found: list[dict[str, Any]] = []
        token = _answers.set(found)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                command(**words)
        except typer.Exit:
            _print(found)
            raise
        finally:
            _answers.reset(token)
        _print(found)

    wrapper.__signature__ = own.replace(parameters=[*parameters, option])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in [*parameters, option]}
    return wrapper


def answer(**facts: Any) -> None:
    """What --json prints, by key; nothing happens where it was not given. What takes a while is
    given as a function without arguments.
    """
    found = _answers.get()
    if found is not None:
        found.append(facts)


def _print(found: list[dict[str, Any]]) -> None:
    # Nothing was answered: the command has said on standard error why.
    if found:
        whole = {key: value for facts in found for key, value in facts.items()}
        print(library.dumps(plain(whole), indent=2, allow_nan=False))


def plain(value: Any) -> Any:
    """As JSON can have it."""
    if isinstance(value, Certificate):
        return library.loads(value.to_json())
    if callable(value):
        return plain(value())
    if isinstance(value, (np.generic, np.ndarray)):
        return plain(value.tolist())
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    # A number that nobody could measure.
    return None if isinstance(value, float) and math.isnan(value) else encode(value)


def of_run(run: Any, timeline: Any = None) -> dict[str, Any]:
    """What a simulation found, at its last measured step; means and standard deviations are over
    the seeds.
    """
    costs = None
    if timeline is not None:
        costs = {"seconds": timeline.seconds[-1], "bytes": timeline.bytes[-1]}
    final = {metric: run.final(metric) for metric in run.metrics}
    found = worth(run)
    return {
        "algorithm": run.algorithm.name,
        "problem": run.problem.name,
        **of_certificate(run.certificate),
        "metrics": {name: {"mean": m, "deviation": d} for name, (m, d) in final.items()},
        "error": found.reached if found and found.released and found.unit else None,
        "r2": found.explained if found else None,
        "guessing": found.guess if found else None,
        "without_noise": found.clean if found else None,
        "alone": found.alone if found else None,
        "steps": int(run.steps[-1]),
        "seeds": run.seeds,
        "seconds": run.seconds,
        "stopped": run.stopped,
        "costs": costs,
        "certificate": run.certificate,
    }


def of_rehearsal(found: Any) -> dict[str, Any]:
    """What was chosen, and how good it was on made-up records."""
    return {
        "settings": found.choice.to_json(),
        "words": found.words,
        "made_up": {
            "score": found.score,
            "without_noise": found.clean,
            "alone": found.alone,
            "guessing": found.guess,
        },
        "warnings": found.warnings,
    }


def of_certificate(certificate: Certificate) -> dict[str, Any]:
    """The numbers that one asks for first."""
    return {
        "epsilon": max(certificate.epsilon),
        "delta": certificate.slack,
        "adjacency": certificate.adjacency,
        "all_collude": max(certificate.all_collude),
    }


def of_release(model: Any, folder: Path) -> dict[str, Any]:
    """A model that may be published, and where it is now."""
    return {
        "folder": folder,
        "algorithm": model.algorithm,
        "problem": model.problem,
        **of_certificate(model.certificate),
        "average_of": model.average_of,
        **_of_test(model),
        "private": model.private,
        "warnings": model.warnings,
    }


def _of_test(model: Any) -> dict[str, Any]:
    """The accuracy, or the error of a number in its own unit."""
    found = model.accuracy
    if model.predictor.classification or found is None:
        return {"accuracy": found, "error": None}
    return {"accuracy": None, "error": in_own_unit(found, model.schema)}


def of_frontier(found: Any) -> dict[str, Any]:
    """Every point; means and standard deviations are over splits and seeds."""
    return {
        "problem": found.problem,
        "graph": found.graph,
        "agents": found.agents,
        "delta": found.delta,
        "adjacency": found.adjacency,
        "epsilons": found.epsilons,
        "points": [
            {
                "series": point.series,
                "label": point.label,
                "epsilon": point.epsilon,
                "certified": point.spent,
                "all_collude": point.all_collude,
                "accuracy": {"mean": point.mean, "deviation": point.deviation},
                "own_models": point.own_mean,
                "settings": point.settings,
            }
            for point in found.points
        ],
        "missing": found.missing,
    }


def of_sweep(sweep: Any) -> dict[str, Any]:
    """How near reconstructions came, level by level."""
    rows = zip(sweep.levels, sweep.mean, sweep.standard_error, sweep.found, strict=True)
    return {
        "levels": [
            {
                "noise": level,
                "error": mean,
                "standard_error": error,
                "labels_right": sum(
                    bool((one.guess.labels == one.true_labels).all()) for one in row
                ),
                "targets": len(row),
                "seconds": sum(one.seconds for one in row),
            }
            for level, mean, error, row in rows
        ],
        "blind": sweep.blind,
        "missing": sweep.left,
    }


def of_findings(findings: Any) -> list[dict[str, Any]]:
    """A paper's conditions."""
    return [
        {"name": one.name, "holds": one.holds, "margin": one.margin, "detail": one.detail}
        for one in findings
    ]

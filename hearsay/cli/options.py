"""The options that describe a configuration, written once for every command that takes one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from hearsay.algorithms.registry import ENTRIES
from hearsay.cli import folders
from hearsay.config import Config, load

# option name -> (table, key, type, help); laid over the file given with --config
_OPTIONS: dict[str, tuple[str, str, Any, str]] = {
    "data": (
        "problem",
        "data",
        str,
        (
            "digits, breast-cancer, mushrooms; linear (streaming regression, with --loss ridge);"
            " mnist, cifar10 (neural networks)."
        ),
    ),
    "loss": (
        "problem",
        "loss",
        str,
        (
            "logistic, ridge, neural; estimation (paper P3's endless stream) or synthetic (paper"
            " P4's learners), which take no --data."
        ),
    ),
    "model": ("problem", "model", str, "A neural network: mlp, cnn-p1, cnn-p3, cnn-p4, resnet18."),
    "clip": (
        "problem",
        "clip",
        str,
        "Bring every record's gradient down to this norm (with --set problem.norm=l1 in l1).",
    ),
    "agents": ("problem", "agents", int, "How many agents."),
    "partition": (
        "problem",
        "partition",
        str,
        "iid, by_label, half_by_label, dirichlet:0.5, dominant:0.4.",
    ),
    "per_step": ("problem", "per_step", int, "Records that reach each agent per step."),
    "head_start": (
        "problem",
        "head_start",
        int,
        "Records that each agent holds before step 0 (the first steps are the dearest).",
    ),
    "data_dir": ("problem", "data_dir", str, "Folder with the raw data files."),
    "graph": (
        "graph",
        "kind",
        str,
        (
            "ring, star, complete, grid, exponential, random; directed: directed-ring,"
            " random-digraph, five-agents."
        ),
    ),
    "weight": (
        "graph",
        "weight",
        str,
        "Edge weight: a number, uniform or metropolis (directed: degree).",
    ),
    "step": ("algorithm", "step", str, 'Step size: a schedule such as "6*(k+1)^-0.77".'),
    "coupling": (
        "algorithm",
        "coupling",
        str,
        "Weight of the neighbours' messages: a schedule, for the methods that have one.",
    ),
    "noise": (
        "algorithm",
        "noise",
        str,
        'Noise scale: a schedule such as "0.5*(k+1)^0.1", a number, or none.',
    ),
    "mechanism": (
        "algorithm",
        "mechanism",
        str,
        (
            "laplace (pure epsilon), gaussian (needs --delta, usually far more accurate) or ternary"
            " (delta at epsilon 0)."
        ),
    ),
    "sampling": ("algorithm", "sampling", str, "history, fresh, cyclic, subset, resample."),
    "sample_size": (
        "algorithm",
        "sample_size",
        str,
        'Records per step and agent: a number or a law such as "(k+1)^1.1".',
    ),
    "epsilon": (
        "privacy",
        "epsilon",
        float,
        "Choose the noise so that every agent spends at most this.",
    ),
    "delta": (
        "privacy",
        "delta",
        float,
        "Also give epsilon at this delta (needed for Gaussian noise).",
    ),
    "steps": ("run", "steps", int, "Rounds of exchange."),
    "seeds": ("run", "seeds", int, "Noise seeds to run side by side."),
    "device": ("run", "device", str, "cpu or gpu: where to compute (default: the best there is)."),
}
_NAMES = ", ".join(ENTRIES)


def configurable(
    subject: str, without: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options above and call it with the `config` they make.

    subject: "algorithm" (one) or "algorithms" (several).

    typer reads a command's options off its signature, so the decorator writes one: the command's
    own parameters after the shared ones.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own["config"]
        parameters = [
            _subject(own.pop(subject, None)),
            *(p for p in _shared() if p.name not in without),
            *own.values(),
        ]

        @functools.wraps(command)
        def wrapper(**words: Any) -> None:
            with folders.command():
                config = _configuration(words, one=subject == "algorithm")
                command(
                    config,
                    **{
                        name: words[name]
                        for name in (*own, *([subject] if subject == "algorithms" else []))
                    },
                )

        signature = inspect.Signature(
            [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        )
        wrapper.__signature__ = signature  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate


def word(text: str) -> Any:
    """A number or truth value where the text is one, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _subject(several: inspect.Parameter | None) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    if several is not None:
        note = Annotated[list[str], typer.Argument(help=f"Two or more of {_NAMES}.")]
        return inspect.Parameter("algorithms", kind, annotation=note)
    return inspect.Parameter(
        "algorithm",
        kind,
        default=None,
        annotation=Annotated[str | None, typer.Argument(help=f"{_NAMES}.")],
    )


def _shared() -> list[inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    found = [
        inspect.Parameter(
            name, kind, default=None, annotation=Annotated[type_ | None, typer.Option(help=text)]
        )
        for name, (_, _, type_, text) in _OPTIONS.items()
    ]
    more = "Any other setting, as table.key=value, e.g. algorithm.feedback=true; repeatable."
    file = "A TOML file (a run's own config.toml repeats it)."
    return [
        *found,
        inspect.Parameter(
            "settings",
            kind,
            default=None,
            annotation=Annotated[list[str] | None, typer.Option("--set", help=more)],
        ),
        inspect.Parameter(
            "config_file",
            kind,
            default=None,
            annotation=Annotated[Path | None, typer.Option("--config", help=file)],
        ),
    ]


def _configuration(words: dict[str, Any], one: bool) -> Config:
    config = load(words["config_file"]) if words["config_file"] else Config()
    tables: dict[str, dict[str, Any]] = {name: {} for name in Config.__dataclass_fields__}
    for name, (table, key, _, _) in _OPTIONS.items():
        value = words.get(name)
        tables[table][key] = (
            word(value) if name in ("weight", "clip") and value is not None else value
        )
    if (words["noise"] or "").lower() == "none":
        tables["algorithm"]["noise"] = 0.0
    if one:
        tables["algorithm"]["name"] = words["algorithm"]
    for setting in words["settings"] or []:
        path, equals, value = setting.partition("=")
        table, dot, key = path.partition(".")
        if not equals or not dot or table not in tables:
            raise ValueError(
                f"--set must be table.key=value with a table of {', '.join(tables)}, got"
                f" {setting!r}"
            )
        tables[table][key] = word(value)
    return config.merged(tables)

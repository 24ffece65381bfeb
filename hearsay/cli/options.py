"""The options that describe a configuration, written once for every command that takes one."""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from hearsay.algorithms import outside
from hearsay.cli import folders
from hearsay.config import TABLES, Config, load

# Of installed packages too; none of them is imported for it.
NAMES = f"{', '.join(outside.names())}; or package.module:Class of your own"
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the run in --out from its checkpoint.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run that is in --out.")]
Out = Annotated[
    Path | None, typer.Option(help="Folder for the results (default: a new one under out/).")
]
CostsText = Annotated[
    str | None,
    typer.Option(
        "--costs",
        help=(
            "What your network costs, as latency=0.05,bandwidth=1.25e6,compute=0.1 (seconds, bytes"
            " a second), for simulated time and traffic."
        ),
    ),
]
DataDir = Annotated[str | None, typer.Option(help="Folder with the raw data files.")]
Flag = typer.Option
# option name -> (table, key, type, help); laid over the file given with --config
_OPTIONS: dict[str, tuple[str, str, Any, str]] = {
    "data": (
        "problem",
        "data",
        list[str],
        (
            "digits, breast-cancer, mushrooms; linear (streaming regression, with --loss ridge);"
            " mnist, cifar10 (neural networks). With --schema: a table (.csv, .parquet), one for"
            " every agent; repeatable."
        ),
    ),
    "schema": (
        "problem",
        "schema",
        str,
        "A schema.toml: what is public of the tables in --data (hearsay schema drafts one).",
    ),
    "test": ("problem", "test", str, "With --schema: a table to test on."),
    "loss": (
        "problem",
        "loss",
        str,
        (
            "logistic, ridge, softmax (several classes), neural; estimation (paper P3's endless"
            " stream) or synthetic (paper P4's learners), which take no --data. With --schema it is"
            " tabular, and the target says the rest."
        ),
    ),
    "model": (
        "problem",
        "model",
        str,
        (
            "A neural network: mlp, cnn-p1, cnn-p3, cnn-p4, resnet18; or package.module:function"
            " that gives one."
        ),
    ),
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
        "Records that each agent holds before step 0 (the first steps cost most).",
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
    "sampling": (
        "algorithm",
        "sampling",
        str,
        "history, fresh, cyclic, subset, poisson, resample.",
    ),
    "sample_size": (
        "algorithm",
        "sample_size",
        str,
        'Records per step and agent: a number or a law such as "(k+1)^1.1".',
    ),
    "sample_rate": (
        "algorithm",
        "sample_rate",
        float,
        "Poisson sampling: the probability with which a record is in a batch.",
    ),
    "correlation": (
        "algorithm",
        "correlation",
        str,
        "gradient-perturbation: noise correlated over time (banded, toeplitz, blt, tree, dense).",
    ),
    "width": (
        "algorithm",
        "width",
        int,
        "The bands or buffers of correlated noise.",
    ),
    "epsilon": (
        "privacy",
        "epsilon",
        float,
        "Choose the noise so that every agent spends at most this (at --delta, where given).",
    ),
    "delta": (
        "privacy",
        "delta",
        float,
        "Give epsilon at this delta, for targets too (needed for Gaussian noise).",
    ),
    "colluders": (
        "secrets",
        "colluders",
        int,
        (
            "Share noise that cancels between agents (needs gaussian noise), for budgets against so"
            " many of the others; with all of them colluding is stated too."
        ),
    ),
    "ratio": (
        "secrets",
        "ratio",
        float,
        "Shared noise of a pair over own noise (default: by a rule for --colluders).",
    ),
    "adjacency": (
        "problem",
        "adjacency",
        str,
        (
            "What certificates protect: replace (one record is replaced by any other) or zero-out"
            " (by an empty one, as in Opacus' epsilon); certify also takes both."
        ),
    ),
    "steps": ("run", "steps", int, "Rounds of exchange."),
    "seeds": ("run", "seeds", int, "Noise seeds to run side by side."),
    "device": ("run", "device", str, "cpu or gpu: where to compute (default: the best there is)."),
}

# What hearsay frontier chooses itself, or takes in another form.
CHOSEN_BY_RULE = (
    "algorithm",
    "per_step",
    "head_start",
    "step",
    "coupling",
    "noise",
    "mechanism",
    "sampling",
    "sample_size",
    "sample_rate",
    "epsilon",
    "delta",
    "colluders",
    "ratio",
    "steps",
    "seeds",
)


def _parameter(name: str, kind: Any, info: Any) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=Annotated[kind | None, info])


_MORE = (
    "Any other setting, as table.key=value, e.g. algorithm.feedback=true or"
    " 'faults.leave=[[3, 40]]'; repeatable."
)
_FILE = "A TOML file (a run's own config.toml repeats it)."
_SHARED = [
    _parameter("algorithm", str, typer.Argument(help=f"{NAMES}.")),
    *(
        _parameter(name, kind, typer.Option(help=text))
        for name, (*_, kind, text) in _OPTIONS.items()
    ),
    _parameter("settings", list[str], typer.Option("--set", help=_MORE)),
    _parameter("config_file", Path, typer.Option("--config", help=_FILE)),
]


def configurable(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the algorithm and the options above, less those named, and call it with the
    `config` that they make.

    typer reads a command's options off its signature: it is given one in which these stand in the
    place of `config`.
    """
    shared = [p for p in _SHARED if p.name not in without]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in own
            for p in (shared if one.name == "config" else [one])
        ]

        @functools.wraps(command)
        def wrapper(**words: Any) -> None:
            chosen = {p.name: words.pop(p.name) for p in shared}
            with folders.command():
                command(config=_configuration(chosen), **words)

        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate


def word(text: str) -> Any:
    """A number or truth value where the text is one, a list where it is in brackets (as in TOML),
    else the text.
    """
    if text.lstrip().startswith("["):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as problem:
            raise ValueError(f"a list must be as in TOML, got {text!r} ({problem})") from None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _configuration(words: dict[str, Any]) -> Config:
    config = load(words["config_file"]) if words["config_file"] else Config()
    tables: dict[str, dict[str, Any]] = {name: {} for name in TABLES}
    for name, (table, key, _, _) in _OPTIONS.items():
        value = words.get(name)
        if name == "data":
            # One name is a data set, unless a schema says that it is a table.
            value = (value[0] if len(value) == 1 else value) if value else None
        tables[table][key] = (
            word(value) if name in ("weight", "clip") and value is not None else value
        )
    if (words.get("noise") or "").lower() == "none":
        tables["algorithm"]["noise"] = 0.0
    tables["algorithm"]["name"] = words.get("algorithm")
    for setting in words["settings"] or []:
        path, equals, value = setting.partition("=")
        table, dot, key = path.partition(".")
        if not equals or not dot or table not in tables:
            raise ValueError(
                f"--set must be table.key=value with a table of {', '.join(tables)}, got"
                f" {setting!r}"
            )
        tables[table][key] = word(value)
    # What is typed may be imported; what only the file says may not.
    return config.merged(tables).allowing(tables["algorithm"]["name"], tables["problem"]["model"])

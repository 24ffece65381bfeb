"""A run described as data: a few small tables, from a TOML file or the command line.

    [problem]    loss = "logistic", "ridge", "softmax", "estimation", "synthetic" or "neural",
                 and the arguments of that function in problems/problem.py; or tables of one's own:
                 schema = "schema.toml", data = ["north.csv", ...] (one file per agent) and
                 perhaps test = "held-out.csv", which need no loss (problems/tabular_data.py).
                 A network of your own is model = "package.module:function", a function without
                 arguments that gives an Equinox or PyTorch module, or what from_module or
                 torch_model gives
    [graph]      kind = "ring", ..., and the arguments of that builder in graphs/; kind = "edges"
                 with edges = [[0, 1, 0.3], ...] for any other
    [algorithm]  name = "ldp-online", ..., or that of an installed package, and the fields of that
                 algorithm; sampling = "fresh", ..., with sample_size = "(k+1)^1.1" where it takes
                 one; sampling = "poisson" with sample_rate = 0.05 and perhaps sample_cap = 800
    [privacy]    epsilon (calibrate the noise to it), delta, budget (stop before it is exceeded),
                 adjacency ("replace" or "zero-out"; [problem] may say it as well)
    [run]        steps, seeds, every, precision, device, release (which average of messages)
    [secrets]    noise that pairs of agents share (graphs/secrets.py): colluders (how many of the
                 other agents it is planned for), ratio (of shared to own noise: one number, or one
                 for each pair), graph = "complete" or "random" with degree and seed, or
                 edges = [[0, 1], ...]; without the table nothing is shared
    [faults]     what goes wrong on the simulated network (simulation/faults.py): loss, asleep,
                 churn, ..., leave = [[3, 100], ...], partitions = [[100, 200, [[0, 1], [2]]], ...];
                 without the table everything is delivered
    [costs]      what messages and computing cost on a network of one's own (simulation/costs.py):
                 latency and compute (seconds), bandwidth (bytes a second), ...; it changes no run

building.py makes of them what a run needs. Paths of tables are taken from the folder of the file
that names them.

A name like "package.module:Class" (an algorithm, a model) makes Python import that module. A file
may have come from anywhere, so such a name counts only where it was also typed: `Config.allowed`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hearsay import _validate as require
from hearsay.algorithms import outside
from hearsay.privacy.adjacency import RELATIONS
from hearsay.release.readouts import READOUTS
from hearsay.schedules import Schedule
from hearsay.simulation.costs import KEYS as COSTS_KEYS
from hearsay.simulation.faults import Faults

RUN_KEYS = ("steps", "seeds", "every", "precision", "device", "release")
PRIVACY_KEYS = ("epsilon", "delta", "budget", "adjacency")
SECRETS_KEYS = ("colluders", "ratio", "graph", "edges", "degree", "seed")
FAULTS_KEYS = tuple(f.name for f in fields(Faults) if f.name != "plan")
TABLES = ("problem", "graph", "algorithm", "privacy", "run", "secrets", "faults", "costs")
# Tables of simulations alone.
SIMULATED = ("faults", "costs")
# Tables that a file need not have, and that would say something if they were empty.
_OPTIONAL = ("secrets", *SIMULATED)
# Keys of [problem] with paths, where there is a schema.
TABLE_KEYS = ("schema", "data", "test")
# What agents spend where nobody has said it: tables of one's own (hearsay fit, the estimators) and
# networks (hearsay network init); and a first run of any method (hearsay run).
EPSILON, DELTA = 2.0, 1e-5
FIRST_EPSILON = 10.0


@dataclass(frozen=True)
class Config:
    """The tables.

    Args:
      problem, graph, algorithm, privacy, run, secrets, faults, costs: as above.
      allowed: the places ("package.module:Class") that [algorithm] and `model` in [problem] may
        import: what somebody typed, never what a file says.
    """

    problem: Mapping[str, Any] = field(default_factory=dict)
    graph: Mapping[str, Any] = field(default_factory=dict)
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    privacy: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, Any] = field(default_factory=dict)
    faults: Mapping[str, Any] = field(default_factory=dict)
    costs: Mapping[str, Any] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in self.run:
            require.one_of("key in [run]", key, RUN_KEYS)
        for key in self.privacy:
            require.one_of("key in [privacy]", key, PRIVACY_KEYS)
        for key in self.secrets:
            require.one_of("key in [secrets]", key, SECRETS_KEYS)
        for key in self.faults:
            require.one_of("key in [faults]", key, FAULTS_KEYS)
        for key in self.costs:
            require.one_of("key in [costs]", key, COSTS_KEYS)
        privacy = {
            key: _RULES[key](f"{key} in [privacy]", value) for key, value in self.privacy.items()
        }
        run = {
            key: _RULES[key](key, value) if key in _RULES else value
            for key, value in self.run.items()
        }
        # One place for it, whichever table says it: certificates take it from the problem.
        adjacency = privacy.pop("adjacency", None)
        said = self.problem.get("adjacency", adjacency)
        if adjacency is not None and said != adjacency:
            require.fail("adjacency in [privacy]", f"{said!r}, as [problem] has it", adjacency)
        if adjacency is not None:
            object.__setattr__(self, "problem", {**self.problem, "adjacency": adjacency})
        object.__setattr__(self, "privacy", privacy)
        object.__setattr__(self, "run", run)

    def merged(self, tables: Mapping[str, Mapping[str, Any]]) -> Config:
        """This configuration with the given keys replaced;
        keys set to None are left as they are.
        """
        found: dict[str, Any] = {
            name: {
                **getattr(self, name),
                **{k: v for k, v in tables.get(name, {}).items() if v is not None},
            }
            for name in TABLES
        }
        return replace(self, **found)

    def allowing(self, *places: str | None) -> Config:
        """This configuration, which may import those places too."""
        typed = (place for place in places if place and outside.is_place(place))
        return replace(self, allowed=(*self.allowed, *typed))

    def without(self, table: str, key: str) -> Config:
        kept = {k: v for k, v in getattr(self, table).items() if k != key}
        changed: dict[str, Any] = {table: kept}
        return replace(self, **changed)

    @property
    def seeds(self) -> int | list[int]:
        return self.run.get("seeds", 5)

    @property
    def every(self) -> int | None:
        return self.run.get("every")

    @property
    def steps(self) -> int:
        return self.run.get("steps", 1000)

    @property
    def release(self) -> str | None:
        """Which average of messages is released; None: the usual one."""
        return self.run.get("release")

    @property
    def delta(self) -> float | None:
        return self.privacy.get("delta")


def _one_or_several(one: require.Rule, each: require.Rule) -> require.Rule:
    """One number, or a list of them."""

    def rule(name: str, value: Any) -> Any:
        if require.is_sequence(value):
            return list(require.each(each)(name, value))
        return one(name, value)

    return rule


def _adjacency(name: str, value: Any) -> str:
    return require.one_of(name, value, RELATIONS)


def _precision(name: str, value: Any) -> int:
    bits = require.count(name, value)
    if bits not in (32, 64):
        require.fail(name, "32 or 64", bits)
    return bits


def _release(name: str, value: Any) -> str:
    return require.one_of(name, value, READOUTS)


# For all agents, or for each.
_BUDGET = _one_or_several(require.positive, require.positive)
_RULES: dict[str, require.Rule] = {
    "epsilon": _BUDGET,
    "budget": _BUDGET,
    "delta": require.fraction,
    "adjacency": _adjacency,
    "steps": require.count,
    # How many, or which.
    "seeds": _one_or_several(require.count, require.natural),
    "every": require.optional(require.count),
    "precision": _precision,
    "release": _release,
}


def load(path: str | Path) -> Config:
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is not there: it must be a configuration (TOML)") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
    for name, table in tables.items():
        require.one_of(f"table in {path}", name, TABLES)
        if not isinstance(table, dict):
            require.fail(f"{name} in {path}", "a table of keys", table)
    require_planned(tables)
    if "problem" in tables:
        tables["problem"] = _moved(tables["problem"], lambda name: Path(path).parent / name)
    return Config(**tables)


def _moved(problem: Mapping[str, Any], place: Callable[[Any], str | Path]) -> dict[str, Any]:
    """The table with the paths of tables as seen from elsewhere."""

    def moved(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [moved(one) for one in value]
        return os.path.normpath(place(value)) if isinstance(value, (str, Path)) else value

    named = TABLE_KEYS if "schema" in problem else ()
    return {key: moved(value) if key in named else value for key, value in problem.items()}


def require_planned(tables: Mapping[str, Any]) -> None:
    """An empty table would read as no secrets at all."""
    if "secrets" in tables and "colluders" not in tables["secrets"]:
        raise ValueError(
            "colluders in [secrets] must be given: how many of the other agents may pool what they"
            " know while budgets hold"
        )


def dump(config: Config, folder: str | Path | None = None) -> str:
    """The configuration as TOML, so that `hearsay run --config` repeats the run.

    Args:
      config: the tables.
      folder: where the file will be: paths of tables are written as seen from there.
    """
    import tomlkit

    if folder is not None:
        config = replace(config, problem=_moved(config.problem, lambda n: _from(folder, n)))
    found = tomlkit.document()
    for table in TABLES:
        # An empty table of secrets would not be read again; files without one are as they were.
        if table in _OPTIONAL and not getattr(config, table):
            continue
        written = tomlkit.table()
        for key, value in getattr(config, table).items():
            written.append(key, toml_item(value))
        found.append(table, written)
    return found.as_string()


def _from(folder: str | Path, path: str) -> str:
    try:
        return os.path.relpath(path, folder)
    except ValueError:  # another drive
        return os.path.abspath(path)


def toml_item(value: Any) -> Any:
    """A value of a configuration as tomlkit writes it, on one line; schedules as their fields."""
    import tomlkit

    if isinstance(value, Schedule):
        value = value.to_dict()
    if hasattr(value, "tolist"):  # a NumPy number, or an array of them
        value = value.tolist()
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        for key, inner in value.items():
            table.append(key, toml_item(inner))
        return table
    if isinstance(value, (list, tuple)):
        array = tomlkit.array()
        array.extend(map(toml_item, value))
        return array
    return tomlkit.item(value if isinstance(value, (bool, int, float)) else str(value))

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

The known keys of a table are read off the function that it feeds, so a new algorithm or builder
needs no change here. An unknown key is an error that names the nearest known one. Paths of tables
are taken from the folder of the file that names them.

A name like "package.module:Class" (an algorithm, a model) makes Python import that module. A file
may have come from anywhere, so such a name counts only where it was also typed: `Config.allowed`.
"""

from __future__ import annotations

import inspect
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hearsay import _validate as require
from hearsay.algorithms import outside
from hearsay.base import Algorithm
from hearsay.certification import calibrate
from hearsay.graphs import BUILDERS, Graph, edges
from hearsay.graphs.secrets import Secrets
from hearsay.privacy.adjacency import RELATIONS
from hearsay.problems import PROBLEMS, TASKS, Problem, Task
from hearsay.problems.data.holdings import Facts
from hearsay.problems.sampling.samplers import SAMPLERS, Fresh, History, Poisson, Sampling, Sized
from hearsay.problems.torch_modules import built
from hearsay.release.readouts import READOUTS
from hearsay.schedules import Schedule
from hearsay.simulation.costs import KEYS as COSTS_KEYS
from hearsay.simulation.costs import Costs
from hearsay.simulation.faults import Faults
from hearsay.simulation.promise import failing
from hearsay.tables.encoding import Counted

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
USUAL = "ldp-online"
# What agents spend where nobody has said it: tables of one's own (hearsay fit, the estimators) and
# networks (hearsay network init); and a first run of any method (hearsay run).
EPSILON, DELTA = 2.0, 1e-5
FIRST_EPSILON = 10.0
# Keys of [algorithm] that belong to its sampler, and the samplers that take them.
_SAMPLING_KEYS: dict[str, type] = {
    "sample_size": Sized,
    "sample_rate": Poisson,
    "sample_cap": Poisson,
}


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


def _one_or_several(name: str, value: Any) -> float | list[float]:
    """One number, or a list with one per agent."""
    return (
        list(require.each(require.positive)(name, value))
        if require.is_sequence(value)
        else require.positive(name, value)
    )


def _adjacency(name: str, value: Any) -> str:
    return require.one_of(name, value, RELATIONS)


def _seeds(name: str, value: Any) -> int | list[int]:
    """How many seeds, or a list of them."""
    return (
        list(require.each(require.natural)(name, value))
        if require.is_sequence(value)
        else require.count(name, value)
    )


def _precision(name: str, value: Any) -> int:
    bits = require.count(name, value)
    if bits not in (32, 64):
        require.fail(name, "32 or 64", bits)
    return bits


def _release(name: str, value: Any) -> str:
    return require.one_of(name, value, READOUTS)


_RULES: dict[str, require.Rule] = {
    "epsilon": _one_or_several,
    "budget": _one_or_several,
    "delta": require.fraction,
    "adjacency": _adjacency,
    "steps": require.count,
    "seeds": _seeds,
    "every": require.optional(require.count),
    "precision": _precision,
    "release": _release,
}


def load(path: str | Path) -> Config:
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
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
        raise ValueError(_UNPLANNED)


_UNPLANNED = (
    "colluders in [secrets] must be given: how many of the other agents may pool what they know"
    " while budgets hold"
)


def build(
    config: Config, notify: Callable[[Counted], None] | None = None, **replaced: Any
) -> tuple[Algorithm, Problem, Graph]:
    """The three things that a simulation needs, with the noise calibrated if a
    target epsilon is given.

    Args:
      config: the tables.
      notify: is given what was counted in every table of rows, for its owner only.
      replaced: arguments of the problem in the place of what the table says.
    """
    told = {"notify": notify} if tabulated(config) else {}
    problem = build_problem(config, **told, **replaced)
    graph = build_graph(config, problem.agents)
    algorithm = build_algorithm(config, problem, graph)
    faults = build_faults(config, algorithm, problem, graph)
    graph = failing(algorithm, problem, graph, config.steps, faults)
    if "epsilon" in config.privacy:
        algorithm = calibrate(
            algorithm, problem, graph, config.steps, config.privacy["epsilon"], delta=config.delta
        )
    return algorithm, problem, graph


def loss_of(config: Config) -> str:
    """The key of PROBLEMS that the table means."""
    keys = config.problem
    usual = "neural" if "model" in keys or keys.get("data") in ("mnist", "cifar10") else "logistic"
    if "schema" not in keys and require.is_sequence(keys.get("data")):
        require.fail("data in [problem]", "one name without a schema (--schema)", keys["data"])
    if "schema" in keys:
        usual = "tabular"
        if keys.get("loss", usual) != usual:
            rule = "left out with a schema: its target says what is learned"
            require.fail("loss in [problem]", rule, keys["loss"])
    return require.one_of("loss in [problem]", keys.get("loss", usual), PROBLEMS)


def tabulated(config: Config) -> bool:
    """Records are made from tables, by a schema."""
    return loss_of(config) == "tabular"


def build_problem(config: Config, **replaced: Any) -> Problem:
    """What the table says, with some of its arguments replaced."""
    keys = {key: value for key, value in config.problem.items() if key != "loss"}
    if tabulated(config):
        require_tables(keys)
    return _call("[problem]", PROBLEMS[loss_of(config)], {**_with_model(config, keys), **replaced})


def require_tables(problem: Mapping[str, Any]) -> Mapping[str, Any]:
    """[problem] with all that tables need."""
    for key in ("schema", "data"):
        if key not in problem:
            raise ValueError(
                f"{key} in [problem] must be given with tables (--{key}): a schema.toml, and one"
                " file for every agent"
            )
    return problem


def build_task(config: Config, data: Facts, known: Sequence[str] = ()) -> Task:
    """What the table says of agents whose data are elsewhere, from what is public of these;
    `known` are the keys that `data` was made from.
    """
    keys = {key: value for key, value in config.problem.items() if key not in ("loss", *known)}
    return _call("[problem]", TASKS[loss_of(config)], {**_with_model(config, keys), "data": data})


def _with_model(config: Config, keys: dict[str, Any]) -> dict[str, Any]:
    """With the network that the function at a place builds, where `model` is one; only where that
    was typed.
    """
    place, where = keys.get("model"), "model in [problem]"
    if not outside.is_place(place):
        return keys
    assert isinstance(place, str)
    if place not in config.allowed:
        raise ValueError(
            f"{where} must not make Python import a module by itself, got {place!r} in a file: if"
            f" you trust that module, name it yourself (hearsay run --model {place}; for agents"
            f" --allow {place}; in a program config.allowing({place!r}))"
        )
    seed = require.natural("seed in [problem]", keys.get("seed", 0))
    return {**keys, "model": built(outside.function_at(where, place), seed)}


@require.plain_arguments
def build_graph(config: Config, agents: int) -> Graph:
    keys, builders = dict(config.graph), {**BUILDERS, "edges": edges}
    kind = require.one_of(
        "kind in [graph]", keys.pop("kind", "edges" if "edges" in keys else "ring"), builders
    )
    return _call("[graph]", builders[kind], {"agents": agents, **keys})


def build_algorithm(config: Config, problem: Task, graph: Graph) -> Algorithm:
    """As the table has it; its noise is not calibrated yet."""
    if "secrets" in config.algorithm:
        rule = "a table of its own, [secrets]"
        require.fail("secrets in [algorithm]", rule, config.algorithm["secrets"])
    algorithm = named_algorithm(dict(config.algorithm), config.steps, config.allowed)
    if (secrets := build_secrets(config)) is not None:
        algorithm = replace(algorithm, secrets=secrets)
    if problem.endless and "sampling" not in config.algorithm and algorithm.sampling.needs_data_set:
        algorithm = replace(algorithm, sampling=Fresh(getattr(algorithm.sampling, "size", None)))
    algorithm.check(graph, problem.task)
    return algorithm


def build_secrets(config: Config) -> Secrets | None:
    """What the table says; None without one."""
    keys = dict(config.secrets)
    if not keys:
        return None
    if "colluders" not in keys:
        raise ValueError(_UNPLANNED)
    if "edges" in keys:
        pairs = keys.pop("edges")
        if "graph" in keys:
            rule = "left out where edges say who shares a secret"
            require.fail("graph in [secrets]", rule, keys["graph"])
        if not require.is_sequence(pairs) or not all(
            require.is_sequence(pair) and len(pair) == 2 for pair in pairs
        ):
            require.fail("edges in [secrets]", "a list of pairs of agents", pairs)
        keys["graph"] = tuple(tuple(pair) for pair in pairs)
    elif not isinstance(keys.get("graph", ""), str):
        require.fail("graph in [secrets]", "complete or random (or give edges)", keys["graph"])
    return Secrets(**keys)


def build_faults(
    config: Config, algorithm: Algorithm, problem: Task, graph: Graph
) -> Faults | None:
    """What [faults] says, or what the patience in [costs] loses; None where everything is
    delivered.
    """
    costs = build_costs(config)
    if costs is None or costs.patience is None:
        return Faults(**config.faults) if config.faults else None
    if config.faults:
        rule = "left out with [faults]: the clock does not know of them"
        require.fail("patience in [costs]", rule, costs.patience)
    line = costs.timeline(algorithm, problem, graph, config.steps)
    return Faults(plan=line) if line.lost else None


def build_costs(config: Config) -> Costs | None:
    """What the table says; None without one."""
    if not config.costs:
        return None
    for key in ("latency", "bandwidth", "compute"):
        if key not in config.costs:
            raise ValueError(
                f"{key} in [costs] must be given (--costs {key}=...): what a network costs is not"
                " guessed"
            )
    return _call("[costs]", Costs, config.costs)


def secrets_table(secrets: Secrets | None) -> dict[str, Any]:
    """The option as the table that `build_secrets` makes it of."""
    if secrets is None:
        return {}
    found: dict[str, Any] = {"colluders": secrets.colluders, "ratio": secrets.ratio}
    found["degree"] = secrets.degree
    if isinstance(secrets.graph, tuple):
        found["edges"] = [list(pair) for pair in secrets.graph]
    else:
        found["graph"] = secrets.graph
    found |= {"seed": secrets.seed} if secrets.seed else {}
    if isinstance(secrets.ratio, tuple):
        found["ratio"] = list(secrets.ratio)
    return {key: value for key, value in found.items() if value is not None}


def algorithm_builder(name: str, allowed: Sequence[str] = ()) -> Callable[..., Algorithm]:
    """The class or function that [algorithm] names; at a place only where that was typed."""
    where = "name in [algorithm]"
    if outside.is_place(name) and name not in allowed:
        raise ValueError(
            f"{where} must not make Python import a module by itself, got {name!r} in a file: if"
            f" you trust that module, name it yourself (hearsay run {name} --config FILE; for"
            f" agents --allow {name}; in a program config.allowing({name!r}))"
        )
    return outside.builder(name, where)


def named_algorithm(keys: dict[str, Any], steps: int, allowed: Sequence[str] = ()) -> Algorithm:
    name = keys.pop("name", USUAL)
    build = algorithm_builder(name, allowed)
    # Noise that is planned for a number of rounds: those of the run.
    taken = inspect.signature(build).parameters
    if "horizon" in taken and ("correlation" not in taken or keys.get("correlation") is not None):
        keys.setdefault("horizon", steps)
    written = {key: keys.pop(key, None) for key in ("sampling", *_SAMPLING_KEYS)}
    if written := {key: value for key, value in written.items() if value is not None}:
        default: Sampling = _call("[algorithm]", build, {}).sampling
        keys["sampling"] = _sampling(default, **written)
    return outside.settled("name in [algorithm]", name, _call("[algorithm]", build, keys))


def _sampling(default: Sampling, sampling: Any = None, **given: Any) -> Sampling:
    """The sampler of that kind; sizes that are not given stay what the algorithm's
    own sampler has.
    """
    if isinstance(sampling, Sampling) and not given:
        return sampling
    chosen = (
        type(default)
        if sampling is None
        else SAMPLERS[require.one_of("sampling in [algorithm]", sampling, SAMPLERS)]
    )
    for key in given:
        if not issubclass(chosen, kind := _SAMPLING_KEYS[key]):
            why = "it uses all records that have arrived"
            if issubclass(chosen, Poisson):
                why = "a record is in a batch by a coin of its own; give sample_rate"
            elif kind is Poisson:
                why = "only sampling = 'poisson' throws coins"
            name = "a history" if chosen is History else chosen.__name__.lower()
            raise ValueError(f"{key} in [algorithm] must be left out with {name}: {why}")
    if issubclass(chosen, Poisson):
        if "sample_rate" not in given:
            raise ValueError(
                "sample_rate in [algorithm] must be given with sampling = 'poisson': the"
                " probability with which a record is in a batch, such as 0.05"
            )
        return chosen(given["sample_rate"], given.get("sample_cap"))
    if not issubclass(chosen, Sized):
        return chosen()
    return chosen(given.get("sample_size", getattr(default, "size", None)))


def _call(table: str, function: Callable[..., Any], keys: Mapping[str, Any]) -> Any:
    known = list(inspect.signature(function).parameters)
    for key in keys:
        require.one_of(f"key in {table}", key, known)
    return function(**keys)


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

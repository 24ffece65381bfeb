"""From a configuration to what a run needs: problem, graph, algorithm, and what may go wrong.

The known keys of a table are read off the function that it feeds, so a new algorithm or builder
needs no change here. An unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hearsay import _validate as require
from hearsay.algorithms import outside
from hearsay.base import Algorithm
from hearsay.certification import calibrate
from hearsay.config.tables import Config, require_planned
from hearsay.graphs import BUILDERS, Graph, edges
from hearsay.graphs.secrets import Secrets
from hearsay.problems import PROBLEMS, TASKS, Problem, Task
from hearsay.problems.data.holdings import Facts
from hearsay.problems.sampling.samplers import SAMPLERS, Fresh, History, Poisson, Sampling, Sized
from hearsay.problems.torch_modules import built
from hearsay.simulation.costs import Costs
from hearsay.simulation.faults import Faults
from hearsay.simulation.promise import failing
from hearsay.tables.counting import Counted

USUAL = "ldp-online"
_GRAPHS: dict[str, Callable[..., Graph]] = {**BUILDERS, "edges": edges}
# Keys of [algorithm] that belong to its sampler, and the samplers that take them.
_SAMPLING_KEYS: dict[str, type] = {
    "sample_size": Sized,
    "sample_rate": Poisson,
    "sample_cap": Poisson,
}


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
    seed = require.seed("seed in [problem]", keys.get("seed", 0))
    return {**keys, "model": built(outside.function_at(where, place), seed)}


@require.plain_arguments
def build_graph(config: Config, agents: int) -> Graph:
    keys = {key: value for key, value in config.graph.items() if key != "kind"}
    return _call("[graph]", _GRAPHS[_kind(config)], {"agents": agents, **keys})


def _kind(config: Config) -> str:
    """The key of _GRAPHS that the table means."""
    usual = "edges" if "edges" in config.graph else "ring"
    return require.one_of("kind in [graph]", config.graph.get("kind", usual), _GRAPHS)


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
    require_planned({"secrets": keys})
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


def in_force(config: Config) -> Config:
    """The configuration with graph, method, steps and seeds written in where nobody said them.

    The settings of a method, a graph or a problem stay out where they are left to their defaults: a
    file with all of them could not be laid under another method.

    Args:
      config: as it is run.
    """
    run = {"steps": config.steps, "seeds": config.seeds}
    name = config.algorithm.get("name", USUAL)
    return config.merged(
        {"graph": {"kind": _kind(config)}, "algorithm": {"name": name}, "run": run}
    )


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

"""From a configuration that was typed to what is run: defaults of a first run, and the parts."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hearsay.cli.options import word
from hearsay.cli.screen import Owner, console, note, progress_bar

if TYPE_CHECKING:
    from hearsay.problems.data.table_rows import TableRows


class Rows:
    """The files of one command, read once however many problems are made of them; their owner is
    told what was counted in them.
    """

    def __init__(self) -> None:
        self._owner = Owner()
        self._read: TableRows | None = None

    def of(self, config: Any) -> dict[str, Any]:
        """What takes the place of the paths in [problem]; nothing where there are none.

        Args:
          config: any that names the command's files.
        """
        from hearsay.config import require_tables, tabulated
        from hearsay.problems.data.table_rows import read_rows
        from hearsay.tables.schema import Schema

        if not tabulated(config):
            return {}
        keys = require_tables(config.problem)
        if self._read is None:
            schema = Schema.of(keys["schema"])
            for warning in schema.warnings:
                self._owner.say(f"{keys['schema']}: {warning}")
            named = {"test": keys.get("test"), "names": keys.get("names")}
            self._read = read_rows(keys["data"], schema, **named, notify=self._owner)
            if self._read.records.agents == 1:
                note(
                    "One file is one agent, which learns by itself: give --data once for every"
                    " agent (hearsay fit --agents deals the rows of one file out)"
                )
        return {"data": self._read, "test": None, "names": None}


def built(config: Any, rows: Rows | None = None) -> tuple[Any, Any, Any]:
    """(algorithm, problem, graph), on the device and in the precision that it names.

    Args:
      config: the tables.
      rows: what has been read of its files before.
    """
    import jax

    from hearsay.config import build
    from hearsay.simulation.memory import choose

    if config.run.get("precision") == 64:
        jax.config.update("jax_enable_x64", True)
    if config.run.get("device"):
        choose(config.run["device"])
    return build(config, **(rows or Rows()).of(config))


def typed(config: Any) -> list[str]:
    """The name that a command must be given again, because a file alone may not import it."""
    from hearsay.algorithms import outside

    name = config.algorithm.get("name")
    return [str(name)] if outside.is_place(name) else []


def horizon_of(text: str) -> Any:
    """A number of messages, or infinity."""
    return math.inf if text.lower() in ("inf", "infinite", "infinity") else word(text)


def with_noise(config: Any, names: Sequence[str] = ()) -> Any:
    """Defaults that make a first run work: every agent spends epsilon = 10,
    at delta = 1e-5 where the noise needs one.
    """
    from hearsay.algorithms import outside
    from hearsay.config import DELTA, FIRST_EPSILON, algorithm_builder

    given = config.privacy.get("epsilon") is not None or config.algorithm.get("noise") is not None
    config = config if given else config.merged({"privacy": {"epsilon": FIRST_EPSILON}})
    names = names or [config.algorithm.get("name", "ldp-online")]
    # A word that is no algorithm is refused where it is built.
    known = [name for name in names if outside.is_place(name) or name in outside.names()]
    builders = [
        inspect.signature(algorithm_builder(name, config.allowed)).parameters for name in known
    ]
    default = {b["mechanism"].default for b in builders if "mechanism" in b}
    kinds = {config.algorithm["mechanism"]} if "mechanism" in config.algorithm else default
    if config.delta is None and any(_needs_delta(kind) for kind in kinds):
        note(f"delta = {DELTA:g}, because none was given (--delta)")
        config = config.merged({"privacy": {"delta": DELTA}})
    return config


def rehearsed(config: Any, rows: Rows) -> tuple[Any, Any]:
    """(the configuration with rehearsed settings, the rehearsal) where it names no algorithm and
    nothing of one; (itself, None) otherwise, and where there are no settings to choose.

    Args:
      config: the tables.
      rows: reads its files, where that is still to be done.
    """
    from hearsay.config import build_graph, build_problem, loss_of
    from hearsay.tradeoff import settled

    # These make endless streams or their own learners: their papers' settings are the usual ones.
    if not settled.unsettled(config) or loss_of(config) in ("estimation", "synthetic", "neural"):
        return config, None
    task = build_problem(settled.described(config), **rows.of(config)).task
    if not settled.rehearsable(task):
        return config, None
    whole = settled.described(config, task.agents)
    graph = build_graph(whole, task.agents)
    for name in ("epsilon", "delta"):
        if name not in config.privacy:
            note(f"{name} = {whole.privacy[name]:g}, because none was given (--{name})")
    with progress_bar() as show:
        written, found = settled.settled(whole, task, graph, show)
    console.print(found.words, soft_wrap=True, highlight=False, markup=False)
    for line in found.warnings:
        note(f"WARNING: {line}")
    return written, found


def with_costs(config: Any, text: str | None) -> Any:
    """With what --costs says."""
    given = {}
    for part in (text or "").split(",") if text is not None else ():
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"--costs must be key=value,key=value, got {text!r}")
        given[key.strip()] = word(value.strip())
    return config.merged({"costs": given})


def costed(config: Any, algorithm: Any, problem: Any, graph: Any, steps: int, faults: Any) -> Any:
    """What those rounds would cost on the network in [costs]; None where there is no such table."""
    from hearsay.config import build_costs

    if (costs := build_costs(config)) is None:
        return None
    found = costs.timeline(algorithm, problem, graph, steps)
    found.require_of(faults)
    return found


def _needs_delta(mechanism: Any) -> bool:
    from hearsay.mechanisms import MECHANISMS

    # A word that is no mechanism is refused where the algorithm is built.
    law = MECHANISMS.get(mechanism) if isinstance(mechanism, str) else None
    return law is not None and law.needs_delta

"""The experiments as data: one TOML file per paper in `data`, one table per experiment.

    [p1-mnist]
    like = "networks"               what is not said here is as there, key by key
    measure = "p1_images:figure"    the function that measures (file:name in this folder)
    title = "..."                   of the report
    problem, graph, algorithms      tables as in a configuration (hearsay/config)
    scales, printed, ...            what the measure reads
    tables.NAME, texts.NAME         caption and header of a table, and other texts

The notes of a report are `data/NAME.txt`: paragraphs with an empty line between them. Texts and
notes are Jinja templates, and a name in one that has no value is an error.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined, UndefinedError

from hearsay import _validate as require
from hearsay.base import Algorithm
from hearsay.config import Config, build_graph, build_problem, named_algorithm
from hearsay.graphs import Graph
from hearsay.privacy.certificate import show
from hearsay.problems import Problem

Table = tuple[str, list[str], list[list[str]]]
FILES = ("networks", "p1", "p2", "p3", "p4")
HERE = resources.files(__package__) / "data"


@dataclass(frozen=True, eq=False)
class Settings:
    """What the files say about one experiment."""

    name: str
    keys: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.keys[require.one_of(f"key of {self.name}", key, self.keys)]

    def replaced(self, **tables: Mapping[str, Any]) -> Settings:
        """With some keys of some tables replaced."""
        return Settings(self.name, _merged(self.keys, tables))

    def problem(self, table: str | Mapping[str, Any] = "problem", **replaced: Any) -> Problem:
        """What a table of that name says, or a table that is given."""
        keys = self[table] if isinstance(table, str) else table
        return build_problem(Config(problem=keys), **replaced)

    def graph(self, table: str = "graph", **replaced: Any) -> Graph:
        keys = {**self[table], **replaced}
        return build_graph(Config(graph=keys), keys.get("agents", 5))

    def algorithm(self, name: str, steps: int = 1, **replaced: Any) -> Algorithm:
        """One of the table `algorithms`; `steps` is the horizon of those that plan for one."""
        tables = self["algorithms"]
        keys = tables[require.one_of(f"algorithm of {self.name}", name, tables)]
        return named_algorithm({**keys, **replaced}, steps)

    def text(self, name: str, **values: Any) -> str:
        return self._said(f"texts.{name}", self["texts"][name], values)

    def title(self, **values: Any) -> str:
        return self._said("title", self["title"], values)

    def table(self, name: str, rows: list[list[str]], **values: Any) -> Table:
        """Rows under the caption and the header that the file has for them."""
        texts = self["tables"][name]
        header = [self._said(f"tables.{name}", text, values) for text in texts["header"]]
        return self._said(f"tables.{name}", texts["caption"], values), header, rows

    def notes(self, values: Mapping[str, Any]) -> list[str]:
        """The paragraphs about the report."""
        name = self.keys.get("notes", self.name)
        template = (HERE / f"{name}.txt").read_text(encoding="utf-8")
        told = self._said(f"{name}.txt", template, values)
        return [" ".join(part.split()) for part in told.split("\n\n") if part.strip()]

    def _said(self, where: str, template: str, values: Mapping[str, Any]) -> str:
        try:
            return _templates().from_string(template).render(values)
        except UndefinedError as error:
            raise ValueError(f"{where} of {self.name} must use known names: {error}") from error


@cache
def read(name: str) -> Settings:
    """The settings of one experiment, with those that it is like filled in."""
    tables = _tables()
    require.one_of("experiment", name, tables)
    keys = tables[name]
    while "like" in keys:
        like = tables[keys["like"]]
        rest = {key: value for key, value in keys.items() if key != "like"}
        keys = _merged(like, rest)
    return Settings(name, keys)


def names() -> list[str]:
    """All experiments that can be run, paper by paper."""
    return [name for name in _tables() if "measure" in read(name).keys]


def listed(words: Sequence[str]) -> str:
    """a, b and c; "none" where there are none."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else "none"


@cache
def _tables() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in FILES:
        found |= tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))
    return found


@cache
def _templates() -> Environment:
    made = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters.update(shown=format, budget=show, listed=listed)
    return made


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both, tables key by key; where they disagree, `over`."""
    return {
        **under,
        **{
            key: _merged(under[key], value)
            if isinstance(value, Mapping) and isinstance(under.get(key), Mapping)
            else value
            for key, value in over.items()
        },
    }

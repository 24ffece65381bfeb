"""What is public of a table: its columns, and which of them is to be predicted.

    target = "diagnosis"

    [columns.age]
    kind = "number"
    range = [0, 120]
    gap = "middle"

    [columns.ward]
    kind = "category"
    levels = ["north", "south"]

    [columns.patient]
    kind = "ignored"

    [columns.diagnosis]
    kind = "category"
    levels = ["benign", "malignant"]

Everybody who learns together has the same schema. A record is made of a row and of nothing else:
numbers go from their range to [-1, 1], a category sets one of its entries to 1, and a constant 1
stands for the intercept.

**Classification.** The record is then divided by its length: a linear model tells classes apart by
the sign of a.theta (or by which of several is largest), which no positive factor changes, and every
record has the norm 1 that a certificate counts on. **Regression.** Records are divided by one
factor for all instead, so that a prediction stays linear in the row: the square root of the number
of columns and 1, because no column adds more than 1 to the square of a record's length (a category
sets one of its entries, a number that is missing none but its mark). The target goes from its range
to [-1, 1], by its logarithm where its scale is "log": what is predicted is then a typical value
(near the median), and not the mean, which a few large ones decide.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay._files import write_atomically
from hearsay.tables.columns import (
    FLAG,
    MANY_LEVELS,
    MIDDLE,
    OTHER,
    Category,
    Column,
    Ignored,
    Number,
    column_of,
    table_of,
)
from hearsay.tables.encoding import Encoded, encode, room
from hearsay.tables.reading import paired, read_table

INTERCEPT = "1"


@require.known_arguments
@dataclass(frozen=True)
class Schema:
    """The public columns of a table.

    Args:
      columns: by name, in the order in which they become entries of a record; names that a table
        has beside these are not read.
      target: the column to be predicted.

    Example:
      >>> import hearsay as hs
      >>> schema = hs.Schema(
      ...     {"age": hs.Number(0, 120), "ill": hs.Category(["no", "yes"])}, target="ill"
      ... )
      >>> schema.entries, schema.classes
      (('age', '1'), ('no', 'yes'))
    """

    columns: Mapping[str, Column]
    target: str

    def __post_init__(self) -> None:
        require.instance("columns", self.columns, Mapping, "columns by name")
        for name, column in self.columns.items():
            if not isinstance(name, str) or not name.strip():
                require.fail("the name of a column", "a text that is not empty", name)
            require.instance(f"column {name!r}", column, (Number, Category, Ignored), "a column")
        object.__setattr__(self, "columns", dict(self.columns))
        require.one_of("target", self.target, self.columns)
        kind = self.columns[self.target]
        if isinstance(kind, Ignored):
            require.fail("target", "a number or a category", f"{self.target!r}, which is ignored")
        if isinstance(kind, Category) and len(kind.levels) < 2:
            require.fail(f"levels of {self.target!r}, the target,", "two or more", kind.levels)
        if kind.gap in (FLAG, MIDDLE, OTHER) and kind.gap not in (self.classes or ()):
            value = "one of its levels" if self.classes else "a number within its range"
            rule = (
                f"left out (rows without a target are refused), or {value} for empty cells to be"
                " taken as"
            )
            require.fail(f"gap of {self.target!r}, the target,", rule, kind.gap)
        if not self.inputs:
            require.fail("columns", "one or more beside the target that are read", [*self.columns])

    def __eq__(self, other: object) -> bool:
        # Equal dicts may have another order, and records have that of the columns.
        return isinstance(other, Schema) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def inputs(self) -> dict[str, Column]:
        """The columns that a prediction is made from."""
        return {
            name: column
            for name, column in self.columns.items()
            if name != self.target and not isinstance(column, Ignored)
        }

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of a record's entries; the last is the constant."""
        found = [entry for name, column in self.inputs.items() for entry in column.entries(name)]
        return (*found, INTERCEPT)

    @property
    def width(self) -> int:
        """How many entries a record has."""
        return len(self.entries)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """What the target may be; None where it is a number. Label k is the k-th of them."""
        kind = self.columns[self.target]
        return kind.levels if isinstance(kind, Category) else None

    @property
    def number(self) -> Number | None:
        """The target's column; None where it is a category."""
        kind = self.columns[self.target]
        return kind if isinstance(kind, Number) else None

    @property
    def factor(self) -> float | None:
        """What every record of a regression is divided by; None where each is by its length."""
        if self.classes:
            return None
        return math.sqrt(len(self.inputs) + 1) * (1 + room(self.width))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What looks private in it."""
        return tuple(
            f"{name!r} has {len(column.levels):,} levels: they look like names of people or places"
            " rather than kinds, and a schema is public"
            for name, column in self.columns.items()
            if isinstance(column, Category) and len(column.levels) > MANY_LEVELS
        )

    @property
    def digest(self) -> str:
        """The same for the same columns in the same order only."""
        text = json.dumps(self.tables, sort_keys=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def tables(self) -> dict[str, Any]:
        """As a schema.toml has it."""
        columns = {name: table_of(column) for name, column in self.columns.items()}
        return {"target": self.target, "columns": columns}

    def encode(self, source: Any, *, name: str | None = None, target: bool = True) -> Encoded:
        """The rows of a table as records; the counts beside them are for its owner only.

        Args:
          source: a path (.csv, .tsv, .parquet), a frame of pandas, polars or pyarrow, a dict of
            columns; a pair (table, labels), where the table may be an array with one column for
            each of `inputs`, or such an array alone.
          name: what errors and counts call it; the path unless given.
          target: read the labels, too.

        Example:
          >>> import hearsay as hs
          >>> columns = {"age": hs.Number(0, 120), "ill": hs.Category(["no", "yes"])}
          >>> schema = hs.Schema(columns, target="ill")
          >>> found = schema.encode({"age": [60, 130], "ill": ["no", "yes"]}, name="north")
          >>> found.features.round(3).tolist(), found.labels.tolist()
          ([[0.0, 1.0], [0.707, 0.707]], [0.0, 1.0])
          >>> print(found.counted)
          north: 2 rows; age: 1 clipped to 0..120
        """
        if isinstance(source, (tuple, np.ndarray)):
            given, labels = source if isinstance(source, tuple) else (source, None)
            read = self.target if target else None
            table = paired(given, labels, list(self.inputs), read, name or "table")
            return encode(self, table, target=target)
        return encode(self, read_table(source, name=name), target=target)

    def decode(self, labels: Any) -> np.ndarray:
        """Labels, or a regression's predictions, as the target's own values.

        Args:
          labels: numbers of classes, or numbers on the scale from -1 to 1.
        """
        labels = require.array("labels", labels)
        if self.classes:
            return np.array(self.classes, dtype=object)[labels.astype(np.int64)]
        assert self.number is not None
        return self.number.from_unit(labels)

    def to_toml(self) -> str:
        """The text of a schema.toml."""
        import tomlkit

        found = tomlkit.document()
        found.append("target", tomlkit.item(self.target))
        tables = tomlkit.table(is_super_table=True)
        for name, keys in self.tables["columns"].items():
            table = tomlkit.table()
            for key, value in keys.items():
                table.append(key, tomlkit.item(value))
            tables.append(name, table)
        found.append("columns", tables)
        return found.as_string()

    def save(self, path: str | os.PathLike) -> Path:
        """Write it as a schema.toml."""
        write_atomically(Path(path), self.to_toml().encode())
        return Path(path)

    @classmethod
    def of(cls, given: Any) -> Schema:
        """A schema, the path of a schema.toml, or what is in one.

        Args:
          given: any of the three.
        """
        if isinstance(given, Schema):
            return given
        if isinstance(given, (str, os.PathLike)):
            return cls.load(given)
        return cls.read(given, "schema")

    @classmethod
    def load(cls, path: str | os.PathLike) -> Schema:
        """What a schema.toml says."""
        file = Path(path)
        if file.is_dir():
            raise ValueError(f"{file} must be a schema.toml, got a folder")
        if not file.is_file():
            raise FileNotFoundError(f"{file} is not there: hearsay schema FILE.csv drafts one")
        try:
            tables = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{file} must be a schema (hearsay schema FILE.csv drafts one), got what is not"
                f" valid TOML: {error}"
            ) from None
        return cls.read(tables, str(file))

    @classmethod
    def read(cls, tables: Any, where: str = "schema.toml") -> Schema:
        """From parsed tables.

        Args:
          tables: as `Schema.tables`.
          where: what error messages call them.
        """
        require.instance(where, tables, Mapping, "a table of keys")
        for key in tables:
            require.one_of(f"key in {where}", key, ("target", "columns"))
        columns = tables.get("columns")
        if not isinstance(columns, Mapping) or not columns:
            require.fail(f"columns in {where}", "a table [columns.NAME] for every column", columns)
        if not isinstance(tables.get("target"), str):
            rule = "the name of the column to be predicted"
            require.fail(f"target in {where}", rule, tables.get("target"))
        found = {name: column_of(f"[columns.{name}] of {where}", t) for name, t in columns.items()}
        try:
            return cls(found, tables["target"])
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

"""The rows of everybody's tables as records, read once: what a simulation on tables is made of.

Whoever simulates has all tables. So a table that is two agents', or is both learned from and tested
on, is refused here: rows that are there twice pay twice, and a model is right of what it has seen.
A copy under another name is found by its rows, whatever their order and the kind of file (all cells
count, as tables/fingerprints.py has them). Files are compared by what is cheap first: only where
their records are the same are they read once more.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hearsay import _validate as require
from hearsay.problems.data.records import Records, padded
from hearsay.tables.counting import Counted
from hearsay.tables.encoding import Encoded
from hearsay.tables.fingerprints import Hashing
from hearsay.tables.reading import read_table
from hearsay.tables.schema import Schema

Notify = Callable[[Counted], None]


class TableRows(NamedTuple):
    """What was read of all tables; private, but for the schema.

    Args:
      schema: by which rows became records.
      records: everybody's.
      test_features: of the rows to test on.
      test_labels: as many.
    """

    schema: Schema
    records: Records
    test_features: np.ndarray
    test_labels: np.ndarray


def read_rows(
    data: Sequence[Any],
    schema: Schema,
    *,
    test: Any = None,
    names: Sequence[str] | None = None,
    notify: Notify | None = None,
) -> TableRows:
    """All tables, one for each agent.

    Args:
      data: as for `tabular`.
      schema: of all of them.
      test: a table to test on, or several.
      names: what errors and the owner's lines call the tables.
      notify: is given what was counted in every table.
    """
    sources = list(data) if isinstance(data, (list, tuple)) else [data]
    if not sources:
        require.fail("data", "one table for every agent", data)
    if names is not None and len(names) != len(sources):
        require.fail("names", f"one for each of the {len(sources)} tables", list(names))
    tested = _listed(test)
    _require_different(sources, tested)
    called = names or [_name(one, f"table of agent {i}") for i, one in enumerate(sources)]
    own = [_encoded(schema, *pair, notify) for pair in zip(sources, called, strict=True)]
    tests = [_encoded(schema, one, _name(one, "test"), notify) for one in tested]
    both = zip([*sources, *tested], [*own, *tests], strict=True)
    _require_unlike([_File(Path(path), one) for path, one in both if _is_path(path)])
    return gathered(schema, own, tests)


def deal_rows(
    source: Any,
    schema: Schema,
    parts: Callable[[int], Iterator[np.ndarray]],
    *,
    test: Any = None,
    name: str | None = None,
    notify: Notify | None = None,
) -> TableRows:
    """One table that is dealt out, read as a whole: errors name its own rows.

    Args:
      source: the table.
      schema: of it.
      parts: which of so many rows each agent gets.
      test: a table to test on, or several.
      name: what errors and the owner's line call it; its path unless given.
      notify: is given what was counted in it.
    """
    tested = _listed(test)
    _require_different([source], tested)
    whole = _encoded(schema, source, name or _name(source, "table"), notify)
    labels = _labels(whole)
    own = [
        Encoded(whole.features[part], labels[part], whole.counted)
        for part in parts(len(whole.features))
    ]
    tests = [_encoded(schema, one, _name(one, "test"), notify) for one in tested]
    both = zip([source, *tested], [whole, *tests], strict=True)
    _require_unlike([_File(Path(path), one) for path, one in both if _is_path(path)])
    return gathered(schema, own, tests)


def gathered(schema: Schema, own: Sequence[Encoded], tests: Sequence[Encoded]) -> TableRows:
    """Records of tables, one for each agent, and of those to test on."""
    records = padded(
        [len(one.features) for one in own], ((one.features, _labels(one)) for one in own)
    )
    features = [np.zeros((0, schema.width)), *(one.features for one in tests)]
    labels = [np.zeros(0), *map(_labels, tests)]
    return TableRows(schema, records, np.concatenate(features), np.concatenate(labels))


def _require_different(sources: list[Any], tested: list[Any]) -> None:
    """By their paths, before anything is read."""
    seen: set[Path] = set()
    for place, one in enumerate([*sources, *tested]):
        if not _is_path(one):
            continue
        path = Path(one).resolve()
        if path in seen:
            name = "data" if place < len(sources) else "test"
            require.fail(name, "files that differ: each is one agent's, or tested on", str(one))
        seen.add(path)


class _File(NamedTuple):
    path: Path
    encoded: Encoded

    def rows(self) -> Hashable:
        return len(self.encoded.features)

    def labels(self) -> Hashable:
        return _digest([_labels(self.encoded)])

    def columns(self) -> Hashable:
        return _digest(self.encoded.features.T)

    def cells(self) -> Hashable:
        table = Hashing(read_table(self.path))
        for _ in table.blocks([]):
            pass
        return tuple(sorted(map(bytes, table.hashes)))


def _require_unlike(files: list[_File]) -> None:
    groups = [files]
    for key in (_File.rows, _File.labels, _File.columns, _File.cells):
        groups = [same for group in groups for same in _same(group, key)]
    for first, second, *_ in groups:
        raise ValueError(
            f"{second.path} must be another table than {first.path}, and has the same rows: each"
            " row is one agent's, or tested on. Leave one of them out; if they are other people's"
            " rows that are the same by chance, give both tables a column that tells them apart"
            " (the schema need not name it)"
        )


def _same(files: list[_File], key: Callable[[_File], Hashable]) -> list[list[_File]]:
    """Groups of two or more with the same key."""
    if len(files) < 2:
        return []
    found: dict[Hashable, list[_File]] = {}
    for one in files:
        found.setdefault(key(one), []).append(one)
    return [group for group in found.values() if len(group) > 1]


def _digest(columns: Any) -> bytes:
    """The same whatever the order of rows."""
    digest = hashlib.sha256()
    for column in columns:
        digest.update(np.sort(column).tobytes())
    return digest.digest()


def _listed(test: Any) -> list[Any]:
    return test if isinstance(test, list) else [] if test is None else [test]


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def _name(source: Any, otherwise: str) -> str:
    return str(source) if _is_path(source) else otherwise


def _encoded(schema: Schema, source: Any, name: str, tell: Notify | None) -> Encoded:
    found = schema.encode(source, name=name)
    if tell is not None:
        tell(found.counted)
    return found


def _labels(found: Encoded) -> np.ndarray:
    assert found.labels is not None
    return found.labels

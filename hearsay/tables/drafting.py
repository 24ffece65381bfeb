"""A schema to start from: kinds of columns from their names and types, ranges left to be filled in.

What is in a schema is public, and everybody who takes part has it. The smallest and the largest
value of a column, and the levels that a category has here, are values of somebody's row: so none of
them is written, unless the owner says that they are public. What is written depends on the header
and on what type of values a column holds:

    number      all cells are numbers; its range is to be filled in
    category    texts; the levels are to be filled in
    ignored     identifiers by their name, dates, texts that are all different, row numbers, and
                texts with more than MANY_LEVELS different values: those look like names, or are
                numbers with a unit or a thousands separator

A draft that is not filled in does not load: the error names the column. What an empty cell means is
said for every input, and not for the target: there is nothing to learn from a row without it. Where
the target is still to be named, it is proposed in comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from hearsay import _validate as require
from hearsay.tables import names
from hearsay.tables.cells import (
    CellError,
    Cells,
    Texts,
    ambiguous,
    is_gap,
    plain_level,
    text_of,
)
from hearsay.tables.columns import MANY_LEVELS
from hearsay.tables.reading import Table, read_table

WHY = """\
What is in this file is public: everybody who takes part has it.
A range is what a column can be for anybody (an age: 0 to 120), never what it is in your rows:
the smallest and the largest value there are somebody's, and telling them would tell of that
person, outside every epsilon. The same holds for the levels of a category.
Take a range no wider than nearly everybody needs, by a textbook (a stay in hospital: 0 to 40
days, not 365): who is outside is taken for the nearer end, and a wide one costs far more.
What spans several powers of ten (a lab value, an income) takes scale = "log" beside its range,
which then begins above 0; zeros are taken for its lower end."""
MEASURED = """\
Ranges and levels were taken from the rows, which you have said are public (--ranges-are-public).
No epsilon covers what they tell."""

_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ]\d{1,2}:.*)?")
# A number with a sign, an exponent, thousands separators, a unit of a few letters.
_FIGURE = re.compile(
    r"[<>≤≥=~]{0,2} ?[+-]?[€$£]? ?[\d.,'/ ]*\d[.,]?(e[+-]?\d+)?"
    r" ?[^\W\d_]{0,5}[%°µ/²³]*[^\W\d_]{0,5}",
    re.IGNORECASE,
)
# That, a date or a time.
_VALUE = re.compile(
    rf"{_DATE.pattern}|\d{{1,2}}:\d\d(:.*)?|true|false|{_FIGURE.pattern}", re.IGNORECASE
)
_CLASSES = 20  # a target with at most so many different whole numbers is a category


@dataclass
class _Seen:
    """What the drafting of one column needs to know of its cells."""

    rows: int = 0
    numbers: bool = True
    whole: bool = True
    # Row numbers: each is the one before it and 1.
    counting: bool = True
    last: float = np.nan
    dates: bool = True
    figures: bool = True
    # Numbers, if none of their commas (or points) is one of thousands.
    doubtful: bool = False
    low: float = np.inf
    high: float = -np.inf
    values: set[str] = field(default_factory=set)
    texts: Texts = field(default_factory=Texts)

    def add(self, cells: Cells) -> None:
        numbers = self._numbers(cells)
        if numbers is not None and (finite := numbers[np.isfinite(numbers)]).size:
            self.low = min(self.low, float(finite.min()))
            self.high = max(self.high, float(finite.max()))
            self.whole = self.whole and bool(np.all(finite == np.floor(finite)))
            before = numbers[0] - 1 if np.isnan(self.last) else self.last
            steps = np.diff(numbers, prepend=before)
            self.counting = self.counting and bool(np.all(steps == 1))
            self.last = float(numbers[-1])
        self.rows += len(cells)
        # Numbers are no dates, and of many levels it is enough to know that they are many.
        settled = self.numbers or not self.figures
        if settled and not self.dates and len(self.values) > MANY_LEVELS:
            return
        several = np.unique(cells) if isinstance(cells, np.ndarray) else set(cells)
        texts = [text_of(one).strip() for one in several]
        filled = [text for text in texts if not is_gap(text)]
        self.dates = self.dates and all(map(_DATE.fullmatch, filled))
        self.figures = self.figures and all(map(_FIGURE.fullmatch, filled))
        if len(self.values) <= MANY_LEVELS:
            self.values.update(map(plain_level, filled))

    def _numbers(self, cells: Cells) -> np.ndarray | None:
        if not self.numbers:
            return None
        if isinstance(cells, np.ndarray):
            self.numbers = cells.dtype.kind != "b"
            return cells.astype(np.float64)
        try:
            return self.texts.numbers(cells)
        except CellError:
            self.numbers = False
            return None


@dataclass(frozen=True)
class Draft:
    """A schema that may have to be filled in.

    Args:
      text: of a schema.toml.
      warnings: what the owner should look at.
    """

    text: str
    warnings: tuple[str, ...]


def draft(source: Any, *, target: str | None = None, ranges_are_public: bool = False) -> Draft:
    """A schema.toml for such a table.

    Args:
      source: as for `Schema.encode`: a path, a frame, a dict of columns.
      target: the column to be predicted; guessed from its name unless given.
      ranges_are_public: take ranges and levels from the rows.

    Example:
      >>> from hearsay.tables.drafting import draft
      >>> table = {"age": [31, 58], "ill": ["no", "yes"]}
      >>> print(draft(table, target="ill").text.partition("[columns.ill]")[0][-107:])
      [columns.age]
      kind = "number"
      range = []  # FILL IN: [smallest, largest], such as [0, 120]
      gap = "middle"
      <BLANKLINE>
      <BLANKLINE>
    """
    require.flag("ranges_are_public", ranges_are_public)
    table = read_table(source)
    columns = list(table.columns)
    _require_header(table)
    if target is not None:
        require.one_of("target", target, columns)
    seen = {name: _Seen() for name in columns}
    for block in table.blocks(columns):
        for name, cells in block.cells.items():
            seen[name].add(cells)
    _require_names(table, seen)
    _doubt(table, seen)
    if not any(one.rows for one in seen.values()):
        raise ValueError(f"{table.name} must have rows below its header, got none")
    guess = target or next(filter(names.is_target, columns), None)
    warnings: list[str] = []
    why = MEASURED if ranges_are_public else WHY
    lines = [*(f"# {line}" for line in why.splitlines()), ""]
    if guess is None:
        lines.append('target = ""  # FILL IN: the column to be predicted')
    else:
        lines.append(f"target = {_quoted(guess)}")
    for name in columns:
        lines += ["", f"[columns.{_key(name)}]"]
        found = _table(name, seen[name], name == guess, ranges_are_public, warnings)
        # Any column may become the target, which has no such gap: then it is only proposed.
        lines += found if guess else [_proposed(line) for line in found]
    return Draft("\n".join(lines) + "\n", tuple(warnings))


def _require_header(table: Table) -> None:
    """Without one the first row would be written into a public file, as names."""
    if not table.columns or any(_VALUE.fullmatch(name) for name in table.columns):
        _no_header(table, "is a number or a date")


def _require_names(table: Table, seen: dict[str, _Seen]) -> None:
    """In a text file a name that stands below itself is a value; y may be one."""
    if table.separator and any(len(name) > 1 and name in seen[name].values for name in seen):
        _no_header(table, "is in its own column, too")


def _doubt(table: Table, seen: dict[str, _Seen]) -> None:
    """What encoding refuses as numbers is none here either."""
    texts = {name: one.texts for name, one in seen.items() if one.numbers}
    while (found := ambiguous(texts, table.separator)) is not None:
        texts.pop(found[0])
        seen[found[0]].numbers, seen[found[0]].doubtful = False, True


def _no_header(table: Table, why: str) -> NoReturn:
    raise ValueError(
        f"{table.name} must begin with a header of column names, and a name on its first line"
        f" {why}: a row there would be written into a public file"
    )


def _table(name: str, seen: _Seen, target: bool, public: bool, warnings: list[str]) -> list[str]:
    number = seen.numbers and not (target and seen.whole and len(seen.values) <= _CLASSES)
    if not target and (reason := _ignored(name, seen, number)):
        if reason in _SAID:
            warnings.append(f"{name!r} has {reason}")
        return [f'kind = "ignored"  # {reason}']
    if number:
        usual = names.usual_range(name)
        such = f", such as {list(usual)}" if usual else " that it can be for anybody"
        such += _POWERS if names.is_amount(name) else ""
        found = f"range = []  # FILL IN: [smallest, largest]{such}"
        if public:
            low, high = seen.low, seen.high
            ends = [int(end) if end.is_integer() else end for end in (low, high)]
            found = f"range = {ends}" if low < high else f"{found} (all are equal)"
        return ['kind = "number"', found, *([] if target else ['gap = "middle"'])]
    found = "levels = []  # FILL IN: all that it can be for anybody"
    if seen.doubtful or len(seen.values) > MANY_LEVELS:
        warnings.append(f"{name!r} has {_FIGURES if seen.figures else _NAMES}")
    elif public and seen.values:
        levels = sorted(seen.values, key=_order)
        found = f"levels = [{', '.join(map(_quoted, levels))}]"
    return ['kind = "category"', found, *([] if target else ['gap = "other"'])]


def _proposed(line: str) -> str:
    note = "what an empty cell means; not for the target"
    return f"# {line}  # {note}" if line.startswith("gap") else line


_NAMES = (
    f"more than {MANY_LEVELS} levels: they look like names of people or places rather than kinds"
)
_POWERS = '; with scale = "log" if it spans powers of ten'
_FIGURES = (
    "numbers with a unit or a thousands separator, which are not read: write plain numbers, and"
    " draft again"
)
_UNLIKE = "texts that are all different: they look like identifiers"
_SAID = (_NAMES, _FIGURES)  # what an owner may not expect


def _ignored(name: str, seen: _Seen, number: bool) -> str:
    """Why a column is not read; "" where it is."""
    if names.is_identifier(name):
        return "an identifier, by its name"
    if number:
        return "row numbers" if seen.counting and seen.whole and seen.rows > 2 else ""
    if seen.dates:
        return "dates: make numbers of them (an age, days since)"
    many = len(seen.values) > MANY_LEVELS
    different = seen.rows > 2 and len(seen.values) == seen.rows
    if seen.figures and (many or different or seen.doubtful):
        return _FIGURES
    if many:
        return _NAMES
    return _UNLIKE if different else ""


def _order(level: str) -> tuple[float, str]:
    try:
        return float(level), ""
    except ValueError:
        return np.inf, level


def _quoted(text: str) -> str:
    import tomlkit

    return tomlkit.item(text).as_string()


def _key(name: str) -> str:
    import tomlkit

    return tomlkit.key(name).as_string() if not re.fullmatch(r"[\w-]+", name, re.A) else name

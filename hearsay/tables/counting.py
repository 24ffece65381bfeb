"""What the owner of a table is told of how it was read: what was clipped, unknown or missing in it,
and which numbers fill hardly any of their range.

All of it is private, as the rows are: it goes into no public file, no certificate and no log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hearsay.tables.columns import FLAG, MIDDLE, Category, Column, Number
from hearsay.tables.crowding import ADVICE

_NAMED = 8  # columns that the owner's line names one by one
_FEW = 3  # of more columns than that
_ALL = {
    "clipped": ("number", "clipped to the columns' ranges"),
    "unknown": ("unknown level", "taken as other"),
    "gaps": ("gap", "taken as the schema says"),
}
_CROWDED = "nine tenths in a tenth of {}"


@dataclass
class Count:
    """What happened to the cells of one column.

    Args:
      clipped: numbers outside the range, taken for its nearer end.
      unknown: levels that the schema does not have, taken as "other".
      gaps: empty cells.
      crowded: nine tenths of the numbers lie in a tenth of the range.
    """

    clipped: int = 0
    unknown: int = 0
    gaps: int = 0
    crowded: bool = False


@dataclass(frozen=True)
class Counted:
    """What the owner of a table should know of how it was read; private, as the rows are.

    Args:
      name: of the table.
      rows: how many there are.
      columns: what happened, by column.
      notes: on the file itself.
      kinds: the columns of the schema.
    """

    name: str
    rows: int
    columns: Mapping[str, Count]
    notes: tuple[str, ...] = ()
    kinds: Mapping[str, Column] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        found = [f"{self.rows:,} rows" if self.rows != 1 else "1 row", *self.notes]
        said = {name: _words(self.kinds[name], count) for name, count in self.columns.items()}
        lines = [f"{name}: {', '.join(words)}" for name, words in said.items() if words]
        # A line of thirty columns is read by nobody.
        found += lines if len(lines) <= _NAMED else _totals(self.columns)
        return f"{self.name}: {'; '.join(found)}"

    @property
    def crowded(self) -> list[str]:
        """Columns that fill hardly any of their range."""
        return [name for name, count in self.columns.items() if count.crowded]

    @property
    def lines(self) -> list[str]:
        """What there is to say, and what to do about it."""
        return [str(self), *([ADVICE] if self.crowded else [])]


def _totals(columns: Mapping[str, Count]) -> list[str]:
    """Over all columns, and where it happened most."""
    found = []
    for what, (thing, words) in _ALL.items():
        counts = {name: getattr(count, what) for name, count in columns.items()}
        if total := sum(counts.values()):
            many, most = sum(map(bool, counts.values())), max(counts, key=counts.__getitem__)
            where = (
                f"in {most}"
                if many == 1
                else f"in {many} columns (most in {most}, {counts[most]:,})"
            )
            found.append(f"{total:,} {thing}{'s' if total != 1 else ''} {words} {where}")
    if crowded := [name for name, count in columns.items() if count.crowded]:
        first = ", ".join(crowded[:_FEW]) + (", ..." if len(crowded) > _FEW else "")
        columns_have = f"{len(crowded)} columns have" if len(crowded) > 1 else "1 column has"
        found.append(f"{columns_have} {_CROWDED.format('the range')} ({first})")
    return found


def _words(column: Column, count: Count) -> list[str]:
    found = []
    if isinstance(column, Number) and count.clipped:
        found.append(f"{count.clipped:,} clipped to {column.low:g}..{column.high:g}")
    if isinstance(column, Number) and count.crowded:
        found.append(_CROWDED.format(f"{column.low:g}..{column.high:g}"))
    if count.unknown:
        levels = "levels" if count.unknown != 1 else "level"
        found.append(f"{count.unknown:,} unknown {levels} taken as other")
    if isinstance(column, (Number, Category)) and count.gaps:
        gap = {MIDDLE: "the middle", FLAG: "the middle, and marked"}.get(
            str(column.gap), f"{column.gap}"
        )
        found.append(f"{count.gaps:,} {'gaps' if count.gaps != 1 else 'gap'} taken as {gap}")
    return found

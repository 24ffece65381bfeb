"""What several calls of benchmarks.papers found about one experiment, as one folder of results.

    python -m benchmarks.results docs/results/p2-mnist OUT1/p2-mnist OUT2/p2-mnist \\
        --panel "Fig. 2: S1" "S1, p = -0.1" "S1, p = 0.1" --panel "Fig. 5" ...

The first folder takes in the runs of the others: their rows of ends.csv and curves.csv, a run that
is there already stays as it is (--instead: gives way to theirs, as where they have more seeds), and
other tables that it does not have. about.json keeps every call with its device and minutes.
figure.png shows the test accuracy of the runs that each panel names.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
from pathlib import Path
from typing import Any

ABOUT, ENDS, CURVES = "about.json", "ends.csv", "curves.csv"
Rows = list[list[str]]


def table(path: Path) -> Rows:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def merged(first: Rows, second: Rows, instead: bool = False) -> Rows:
    """Under one header; runs are in the first column, those of the first table first.

    Args:
      instead: a run that both have is the second one's.
    """
    if first[0] != second[0]:
        raise ValueError(f"tables must have one header, got {first[0]} and {second[0]}")
    mine, theirs = by_run(first), by_run(second)
    runs = {**mine, **theirs} if instead else {**mine, **theirs, **mine}
    return [first[0], *(row for rows in runs.values() for row in rows)]


def by_run(rows: Rows) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for row in rows[1:]:
        found.setdefault(row[0], []).append(row)
    return found


def take(home: Path, other: Path, instead: bool = False) -> None:
    home.mkdir(parents=True, exist_ok=True)
    for path in sorted(other.glob("*.csv")):
        mine = home / path.name
        if not mine.exists():
            shutil.copyfile(path, mine)
        elif path.name in (ENDS, CURVES):
            rows = merged(table(mine), table(path), instead)
            with mine.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
    found = json.loads((other / ABOUT).read_text(encoding="utf-8"))
    before = json.loads((home / ABOUT).read_text(encoding="utf-8")) if _has(home) else None
    _write(home, joined(before, found, [row[0] for row in table(home / ENDS)[1:]]))


def joined(before: dict[str, Any] | None, found: dict[str, Any], runs: list[str]) -> dict[str, Any]:
    """Every call, the minutes of all of them, and what none of them had time for."""
    calls = [] if before is None else before.get("calls", [before])
    if found not in calls:
        calls = [*calls, found]
    left = dict.fromkeys(name for call in calls for name in call["left_out"])
    missing = [name for name in left if name not in (*runs, "the report")]
    minutes = round(sum(call["minutes"] for call in calls), 2)
    return {"minutes": minutes, "runs": len(runs), "left_out": missing, "calls": calls}


def draw(home: Path, panels: list[list[str]]) -> None:
    from matplotlib import pyplot

    from hearsay.report.plot_style import COLOURS, DASHES, styled

    rows = table(home / CURVES)[1:]
    with styled():
        figure, axes = pyplot.subplots(
            1, len(panels), figsize=(4.2 * len(panels), 4.4), sharey=True, squeeze=False
        )
        for ax, (title, *names) in zip(axes[0], panels, strict=True):
            for index, name in enumerate(names):
                points = [(int(row[1]), float(row[2])) for row in rows if row[0] == name]
                if not points:
                    raise ValueError(f"{home / CURVES} must have the run {name!r} of {title!r}")
                colour, dash = index % len(COLOURS), index // len(COLOURS)
                ax.plot(*zip(*points, strict=True), c=COLOURS[colour], ls=DASHES[dash], label=name)
            ax.set_title(title)
            ax.set_xlabel("iteration")
            ax.set_ylim(0, 1)
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14))
        axes[0, 0].set_ylabel("test accuracy")
        figure.savefig(home / "figure.png", dpi=80, bbox_inches="tight")


def _has(home: Path) -> bool:
    return (home / ABOUT).exists()


def _write(home: Path, about: dict[str, Any]) -> None:
    text = json.dumps(about, indent=1, ensure_ascii=False)
    (home / ABOUT).write_text(text + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("home", type=Path)
    parser.add_argument("others", type=Path, nargs="*")
    parser.add_argument("--instead", action="store_true")
    parser.add_argument("--panel", nargs="+", action="append", default=[], metavar="TITLE RUN")
    options = parser.parse_args()
    for other in options.others:
        take(options.home, other, options.instead)
    if options.panel:
        draw(options.home, options.panel)


if __name__ == "__main__":
    main()

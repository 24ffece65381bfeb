"""What several calls of benchmarks.papers found about one experiment, as one folder of results.

    python -m benchmarks.results docs/results/p2-mnist OUT1/p2-mnist OUT2/p2-mnist \\
        --panel "Fig. 2: S1" "S1, p = -0.1" "S1, p = 0.1" --panel "Fig. 5" ...

The first folder takes in the runs of the others: their rows of ends.csv and curves.csv, and other
tables that it does not have. A run that both have with different noise seeds is put together (means
and standard deviations over all of them); with the same seeds it stays as it is (--instead: gives
way to theirs). figure.png shows the test accuracy of the runs that each panel names; panels that
were named once are drawn again. about.json keeps them, and every call with its device and minutes.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

ABOUT, ENDS, CURVES = "about.json", "ends.csv", "curves.csv"
# Columns of ends.csv: those that have a value per seed, those that are summed up and listed, and
# the step that a run was made with.
ACCURACIES = ("test accuracy", "worst agent", "training accuracy")
TIME, SEEDS, STEP = "time", "seeds", "step"
Rows = list[list[str]]


def table(path: Path) -> Rows:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def by_run(rows: Rows) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for row in rows[1:]:
        found.setdefault(row[0], []).append(row)
    return found


def merged(first: Rows, second: Rows, together: dict[str, Rows], instead: bool = False) -> Rows:
    """Under one header; runs are in the first column, those of the first table first.

    Args:
      together: the rows of runs that both have with different seeds.
      instead: another run that both have is the second one's.
    """
    mine, theirs = by_run(first), by_run(second)
    runs = {**mine, **theirs} if instead else {**mine, **theirs, **mine}
    return [first[0], *(row for rows in {**runs, **together}.values() for row in rows)]


def apart(ends: Rows, others: Rows) -> dict[str, tuple[int, int]]:
    """How many seeds each has, for the runs that both have with no seed in common."""
    found = {}
    for run, seeds in seeds_of(ends).items():
        more = seeds_of(others).get(run, seeds)
        if not set(seeds) & set(more):
            found[run] = (len(seeds), len(more))
    return found


def seeds_of(ends: Rows) -> dict[str, list[str]]:
    column = ends[0].index(SEEDS)
    return {row[0]: row[column].split() for row in ends[1:]}


def pooled_row(header: list[str], first: list[str], second: list[str], n: int, m: int) -> list[str]:
    """One row of ends.csv over n and m seeds."""
    row = []
    for column, x, y in zip(header, first, second, strict=True):
        if column in ACCURACIES:
            row.append(pooled(x, y, n, m))
        elif column == TIME:
            row.append(f"{float(x.split()[0]) + float(y.split()[0]):.0f} s")
        elif column == SEEDS:
            row.append(" ".join(sorted([*x.split(), *y.split()], key=int)))
        elif x != y:
            raise ValueError(f"{first[0]!r} must have one {column}, got {x} and {y}")
        else:
            row.append(x)
    return row


def pooled(x: str, y: str, n: int, m: int) -> str:
    """Mean and standard deviation of n and m values, from those of each ("0.5 ± 0.1", or "0.5" of
    one value).
    """
    (a, s), (b, t) = ((float(part) for part in f"{z} ± 0".split(" ± ")[:2]) for z in (x, y))
    mean = (n * a + m * b) / (n + m)
    squares = (n - 1) * s**2 + (m - 1) * t**2 + n * (a - mean) ** 2 + m * (b - mean) ** 2
    return f"{mean:.4f} ± {math.sqrt(squares / (n + m - 1)):.4f}"


def pooled_point(first: list[str], second: list[str], n: int, m: int) -> list[str]:
    """One row of curves.csv (run, step, means) over n and m seeds."""
    if first[:2] != second[:2]:
        raise ValueError(f"{first[0]!r} must be measured at the same steps")
    means = (
        (n * float(x) + m * float(y)) / (n + m) for x, y in zip(first[2:], second[2:], strict=True)
    )
    return [*first[:2], *(f"{mean:.5g}" for mean in means)]


def take(home: Path, other: Path, instead: bool = False) -> None:
    home.mkdir(parents=True, exist_ok=True)
    if (home / ENDS).exists():
        tables = [(table(home / name), table(other / name)) for name in (ENDS, CURVES)]
        for mine, theirs in tables:
            if mine[0] != theirs[0]:
                raise ValueError(f"tables must have one header, got {mine[0]} and {theirs[0]}")
        (ends, others), (curves, drawn) = tables
        rows: dict[str, Rows] = {}
        points: dict[str, Rows] = {}
        for run, (n, m) in apart(ends, others).items():
            both = zip(by_run(ends)[run], by_run(others)[run], strict=True)
            rows[run] = [pooled_row(ends[0], a, b, n, m) for a, b in both]
            both = zip(by_run(curves)[run], by_run(drawn)[run], strict=True)
            points[run] = [pooled_point(a, b, n, m) for a, b in both]
        write(home / ENDS, merged(ends, others, rows, instead))
        write(home / CURVES, merged(curves, drawn, points, instead))
    for path in sorted(other.glob("*.csv")):
        if not (home / path.name).exists():
            shutil.copyfile(path, home / path.name)
    before = about(home) if (home / ABOUT).exists() else {"calls": []}
    keep(home, joined(before, about(other), [row[0] for row in table(home / ENDS)[1:]]))


def write(path: Path, rows: Rows) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def joined(before: dict[str, Any], found: dict[str, Any], runs: list[str]) -> dict[str, Any]:
    """Every call, the minutes of all of them, and what none of them had time for."""
    calls = before.get("calls", [before])
    if found not in calls:
        calls = [*calls, found]
    left = dict.fromkeys(name for call in calls for name in call["left_out"])
    missing = [name for name in left if name not in (*runs, "the report")]
    minutes = round(sum(call["minutes"] for call in calls), 2)
    panels = before.get("panels", [])
    said = {"minutes": minutes, "runs": len(runs), "left_out": missing}
    return {**said, "panels": panels, "calls": calls}


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
            ax.set_xlabel("step")  # an iteration; of P4 a round
            ax.set_ylim(0, 1)
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14))
        axes[0, 0].set_ylabel("test accuracy")
        figure.savefig(home / "figure.png", dpi=120, bbox_inches="tight")


def about(home: Path) -> dict[str, Any]:
    return json.loads((home / ABOUT).read_text(encoding="utf-8"))


def keep(home: Path, about: dict[str, Any]) -> None:
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
        keep(options.home, {**about(options.home), "panels": options.panel})
    if panels := about(options.home).get("panels"):
        draw(options.home, panels)


if __name__ == "__main__":
    main()

"""What the terminal shows: progress with time left and budget spent, and tables."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from hearsay.privacy.adjacency import ZERO_OUT
from hearsay.privacy.certificate import few
from hearsay.privacy.certificate import show as show_epsilon
from hearsay.privacy.curve import ALL
from hearsay.simulation.own_unit import Errors, errors_of
from hearsay.simulation.worth import Worth, worth
from hearsay.tables.counting import Counted

console = Console()
errors = Console(stderr=True)


_SIGNS = {"epsilon": "ε", "delta": "δ"}


def note(text: str) -> None:
    """What the reader should know beside the answer, on standard error."""
    errors.print(text, style="yellow", soft_wrap=True, highlight=False, markup=False)


def typeable(*words: Any) -> str:
    """A command as it can be typed: what a shell would take apart is in quotes, and no file is
    taken for an option.
    """
    return shlex.join(
        f"./{w}" if isinstance(w, Path) and f"{w}"[:1] == "-" else f"{w}" for w in words
    )


class Owner:
    """Prints what was counted in every table, once: where its owner sees it, and in no file."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, counted: Counted) -> None:
        for line in counted.lines:
            self.say(line)

    def say(self, line: str) -> None:
        if line not in self._seen:
            self._seen.add(line)
            note(line)


@contextmanager
def progress_bar(unit: str = "epsilon") -> Iterator[Callable[..., None]]:
    """show(name, done, total[, spent, note]): one bar per name, with the time left and the largest
    budget spent so far, in its unit, or else a note.
    """
    columns = (
        TextColumn("{task.description:>12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[spent]}"),
    )
    sign = _SIGNS[unit]
    with Progress(*columns, console=errors) as progress:
        tasks: dict[str, Any] = {}

        def show(
            name: str, done: int, total: int | None, spent: float | None = None, note: str = ""
        ) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total, spent="")
            text = note if spent is None else f"spent {sign} {show_epsilon(spent)}"
            progress.update(tasks[name], completed=done, total=total, spent=text)

        yield show


def summary(runs: dict[str, Any]) -> None:
    """One row per run: the final numbers beside the budgets."""
    first = next(iter(runs.values()))
    wanted = (
        "accuracy",
        "accuracy_worst",
        "released_accuracy",
        "test_error",
        "released_error",
        "tracking_error",
    )
    # Without a best model to compare with there is no distance from it.
    known = [metric for metric in wanted if metric in first.metrics]
    shown = [m for m in known if not all(math.isnan(r.final(m)[0]) for r in runs.values())]
    wrong = {name: errors_of(run) for name, run in runs.items()}
    said = ["mean ± standard deviation over seeds"] if _several(runs.values()) else []
    said += [f"errors: root mean squared, {one.unit}" for one in wrong.values() if one][:1]
    how = f" ({'; '.join(said)})" if said else ""
    table = Table(title=f"After the last step{how}")
    table.add_column("algorithm", overflow="fold")
    for column in ("largest ε", *(metric.replace("_", " ") for metric in shown), "time"):
        table.add_column(column, justify="right")
    for name, result in runs.items():
        numbers = [_final(result, wrong[name], metric) for metric in shown]
        table.add_row(name, _largest(result.certificate), *numbers, f"{result.seconds:.1f} s")
    console.print(table)
    for name, result in runs.items():
        if line := _beside(result):
            console.print(f"{name}: {line}", soft_wrap=True, highlight=False)


def _final(result: Any, wrong: Errors | None, metric: str) -> str:
    """A metric at the end; errors of numbers in the target's own unit."""
    known = {} if wrong is None else {"test_error": wrong.own, "released_error": wrong.released}
    mean, deviation = known.get(metric) or result.final(metric)
    # One seed has no spread, which is not a spread of 0.
    return f"{mean:.4g} ± {deviation:.2g}" if _several([result]) else f"{mean:.4g}"


def _several(runs: Iterable[Any]) -> bool:
    return any(len(run.seeds) > 1 for run in runs)


def costs_table(runs: dict[str, Any], timelines: dict[str, Any]) -> None:
    """What the runs take on the network that was described, and what they had learned at equal
    time and at equal traffic.
    """
    from hearsay.report.costs import cost_table

    caption, header, rows = cost_table(runs, timelines)
    table = Table(title=caption)
    for number, column in enumerate(header):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _beside(result: Any) -> str:
    """The released model beside what it is to be compared with; "" where nothing is known."""
    found = None if result.beside is None else worth(result)
    if found is None or not found.released:
        return ""
    said = [f"{value:.4g} {name}" for name, value in reversed(found.beside.items())]
    kind = "accuracy" if found.unit is None else "error"
    explained = "" if found.explained is None else f"; R^2 {found.explained:.3g}"
    return f"released {kind} {found.reached:.4g} ({', '.join(said)}){explained}"


def _largest(certificate: Any) -> str:
    """The largest epsilon, and at which delta where it is not pure; beside a pure one, that at the
    certificate's delta.
    """
    top = show_epsilon(max(certificate.epsilon))
    said = [] if certificate.slack is None else [f"δ = {certificate.slack:.3g}"]
    if certificate.compared:
        beside = show_epsilon(max(b.compared for b in certificate.budgets.kinds))
        said.append(f"{beside} at δ = {certificate.delta:.3g}")
    said += [certificate.adjacency] if ZERO_OUT in certificate.adjacency else []
    said += [certificate.collusion] if certificate.collusion else []
    return f"{top} ({', '.join(said)})" if said else top


def theory_table(findings: list[Any]) -> None:
    if not findings:
        return
    title = "The paper's conditions (they are about convergence; the budget does not rest on them)"
    table = Table("condition", "holds", "detail", title=title)
    for finding in findings:
        table.add_row(
            finding.name, "yes" if finding.holds else "[yellow]no[/yellow]", finding.detail
        )
    console.print(table)


def plan_table(plan: Any) -> None:
    """The schedules of a plan and what they promise."""
    table = Table(title="The plan", show_header=False)
    algorithm = plan.algorithm
    for name, value in algorithm.options.items():
        if name == "secrets" and value is None:
            continue
        table.add_row(name, few(value, "\n") if isinstance(value, tuple) else str(value))
    promise = (
        "no theorem promises one"
        if plan.rate is None
        else f"expected squared error falls at least like k^-{plan.rate:.3g}"
    )
    if plan.rate is not None and plan.rate <= 0:
        promise = f"none: the exponent would be {plan.rate:.3g}"
    table.add_row("predicted rate", promise)
    if plan.oracle is not None:
        table.add_row(
            "oracle complexity", f"an accuracy e takes about e^-{plan.oracle:.3g} records per agent"
        )
    used = "more and more forever" if math.isinf(plan.records) else f"{plan.records:,.0f}"
    table.add_row("records per agent", used)
    if plan.certificate.collusion:
        top = show_epsilon(max(plan.certificate.epsilon))
        table.add_row("largest epsilon", f"{top} {plan.certificate.collusion}")
    console.print(table)


def attack_table(sweep: Any) -> None:
    """One row per noise level: how near the reconstructions come."""
    table = Table(title="Error of a pixel (root mean square, mean ± standard error over targets)")
    for column in ("noise ×", "error", "mean squared", "labels right", "time each"):
        table.add_column(column, justify="right")
    for level, mean, error, row in zip(
        sweep.levels, sweep.mean, sweep.standard_error, sweep.found, strict=True
    ):
        squared = sum(one.error**2 for one in row) / len(row)
        right = sum(bool((one.guess.labels == one.true_labels).all()) for one in row)
        seconds = sorted(one.seconds for one in row)[len(row) // 2]
        table.add_row(
            f"{level:g}",
            f"{mean:.4f} ± {error:.4f}",
            f"{squared:.4f}",
            f"{right} of {len(row)}",
            f"{seconds:.1f} s",
        )
    table.add_row("a blind guess", f"{sweep.blind:.4f}", f"{sweep.blind**2:.4f}", "", "")
    console.print(table)


def frontier_table(found: Any) -> None:
    """One row per series, one column per epsilon."""
    table = Table(title=found.title)
    table.add_column("")
    for epsilon in found.epsilons:
        table.add_column(f"ε = {epsilon:g}", justify="right")
    for _, label, points in found.rows:
        table.add_row(label, *("-" if p is None else escape(p.cell) for p in points))
    console.print(table)
    if found.note:
        console.print(found.note, soft_wrap=True, highlight=False)


def hint(runs: dict[str, Any], rehearsed: bool = False) -> None:
    """Say it when models are no better than a guess, and what would help that is not done yet.

    Args:
      runs: by name.
      rehearsed: their settings come from a rehearsal.
    """
    found = {name: worth(run) for name, run in runs.items()}
    poor = {name: one for name, one in found.items() if one is not None and one.no_better}
    if not poor:
        return
    whose = f" of {', '.join(poor)}" if len(runs) > 1 else ""
    guess = _guess(next(iter(poor.values())))
    if rehearsed and len(runs) == 1 and all(_noise_is_not_why(runs[n], w) for n, w in poor.items()):
        note(
            f"The model is no better than always naming {guess}, and it"
            " would not be without noise: a larger epsilon will not help. Look at the schema: are"
            ' ranges far wider than nearly everybody needs, or does a column need scale = "log"'
            " (docs/tables.md)? Or there are too few rows, or the columns say little of the target."
        )
        return
    helps = _helps([runs[name] for name in poor], rehearsed)
    note(
        f"At this budget the models{whose} are no better than always naming {guess}. What helps:"
        f" {helps}; hearsay demo shows a case that works."
    )


def _noise_is_not_why(run: Any, found: Worth) -> bool:
    """The same settings without noise are no better than a guess either, of a table."""
    return run.problem.schema is not None and found.hopeless


def _guess(found: Worth) -> str:
    if found.unit is None:
        return f"the commoner label ({found.guess:.0%})"
    return f"the mean (error {found.guess:.4g}, {found.unit})"


def _helps(runs: list[Any], rehearsed: bool) -> str:
    said = ["a larger epsilon", "more records or agents"]
    if any(one.algorithm.secrets is None and one.problem.agents > 2 for one in runs):
        said.append("shared noise (--colluders)")
    if any(not one.algorithm.law.at_delta for one in runs):
        said.append("Gaussian noise (--mechanism gaussian --delta 1e-5)")
    if not rehearsed:
        said.append("settings by rehearsal (name no algorithm)")
    if any(_is_network_on_table(one.problem) for one in runs):
        said.append("a linear model (leave --model out)")
    return f"{', '.join(said[:-1])}{',' if len(said) > 2 else ''} and {said[-1]}"


def _is_network_on_table(problem: Any) -> bool:
    """What a linear model may well learn at a budget at which a network learns nothing."""
    from hearsay.problems.losses.loss import BoundedLoss

    return problem.schema is not None and not isinstance(problem.loss, BoundedLoss)


def algorithm_line(algorithm: Any) -> str:
    """The configuration that a certificate speaks of."""
    values = algorithm.options
    shown = (
        f"{k} {few(v, ' | ') if isinstance(v, tuple) else v}"
        for k, v in values.items()
        if v is not False and not (k == "secrets" and v is None)
    )
    return f"For {algorithm.name} with {', '.join(shown)}"


@contextmanager
def watching() -> Iterator[Callable[[Any], None]]:
    """show(table): always the latest, in place; nothing where nobody watches."""
    if not console.is_terminal:
        yield lambda table: None
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield live.update


Rows = list[tuple[str, dict[str, Any] | None, bool]]


def network_table(
    network: Any, rows: Rows, restarts: dict[str, int] | None = None, lines: int | None = None
) -> Table:
    """One row per agent: (name, what it last said of itself, whether it answers now).

    Where so many lines have no room for all of them: those that most deserve a look.
    """
    rows, rest = _behind(rows, lines)
    table = Table(
        title=(
            f"{network.run}: {network.config.algorithm.get('name', 'ldp-online')}, policy"
            f" {network.policy}"
        ),
        caption=rest,
    )
    unit = _SIGNS[next((facts["unit"] for _, facts, _ in rows if facts), "epsilon")]
    for column in (
        "agent",
        "round",
        f"spent {unit}",
        "connected to",
        "waiting for",
        "dropped",
        *(["restarts"] if restarts else []),
    ):
        table.add_column(
            column,
            justify="right"
            if column in ("round", "spent ε", "spent δ", "dropped", "restarts")
            else "left",
        )
    for name, facts, here in rows:
        more = [str(restarts[name])] if restarts else []
        if facts is None:
            table.add_row(name, "-", "-", "[yellow]not reached[/yellow]", "", "", *more)
            continue
        done = "[green]done[/green]" if facts["done"] else _progress(facts)
        peers = (
            f"{len({*facts['alive']} & {*facts['hears']})} of {len(facts['hears'])}"
            if here
            else "[yellow]not reached[/yellow]"
            if not facts["done"]
            else ""
        )
        spent = show_epsilon(facts["spent"]) + (
            "" if facts["private"] else " [red]NOT PRIVATE[/red]"
        )
        dropped = sum(facts["dropped"].values())
        # Words of another machine.
        waiting = escape(few(facts["waiting_for"], ", ", 6 if rest is None else 2))
        table.add_row(name, done, spent, peers, waiting, str(dropped or ""), *more)
    return table


# Of a table: its title, head and frame, the line that says what is left out, and the cursor's.
_FRAME = 7


def _behind(rows: Rows, lines: int | None) -> tuple[Rows, str | None]:
    """The agents that are not reached or furthest behind, as many as there is room for, in their
    order; and what the others have in common, in words.
    """
    if lines is None or len(rows) <= (room := max(1, lines - _FRAME)):
        return rows, None

    def urgency(row: tuple[str, dict[str, Any] | None, bool]) -> tuple[int, int]:
        _, facts, here = row
        return (0, 0) if facts is None else (1 + (here or facts["done"]), facts["round"])

    ordered = sorted(rows, key=urgency)
    first, last = ordered[room][1], ordered[-1][1]
    rest = f"and {len(rows) - room} more"
    if first is None:
        rest += ", of which some are not reached either"
    elif last is not None:
        rest += f", in rounds {first['round']} to {last['round']}"
    chosen = {name for name, *_ in ordered[:room]}
    return [row for row in rows if row[0] in chosen], rest


def _progress(facts: dict[str, Any]) -> str:
    """The round; and which of its relays, where messages are passed on."""
    relay = f", relay {facts['relay']} of {facts['relays']}" if facts.get("relay") else ""
    return f"{facts['round']} of {facts['of']}{relay}"


def spent_table(found: dict[str, dict[str, Any]]) -> Table:
    """One row per run of each agent on this host, and what its records have spent in all of them
    (deploy/spending.py).
    """
    kinds = {_at(one) for facts in found.values() for one in (*facts["runs"], facts)}
    # What all of them share is said once.
    shared = kinds.pop() if len(kinds) == 1 else ""
    table = Table(
        title="Spent on this host",
        caption="counted: the whole plan of a run, from its first message on"
        + (f"; every ε{shared}" if shared else ""),
    )
    for column in ("agent", "run", "messages", "spent", "counted", "began", "last message"):
        table.add_column(
            column, justify="right" if column in ("messages", "spent", "counted") else "left"
        )
    for name, facts in found.items():
        for run in facts["runs"]:
            messages = "no ledger" if run["messages"] is None else f"{run['messages']}"
            messages += "" if run["of"] is None or run["messages"] is None else f" of {run['of']}"
            counted = (
                "[yellow]not entered[/yellow]"
                if run["counted"] is None
                else show_epsilon(run["counted"]) + _at(run, shared)
            )
            counted += " [red]NOT PRIVATE[/red]" if run["mechanism"] == "rehearsal" else ""
            table.add_row(
                name,
                run["run"],
                messages,
                show_epsilon(run["spent"]),
                counted,
                _when(run["began"]),
                _when(run["last"]),
            )
        if facts["total"] is not None:
            at = _at(facts, shared)
            if facts["all_collude"] is not None:
                at += f" ({show_epsilon(facts['all_collude'])} if {ALL})"
            table.add_row(
                name,
                "[bold]all[/bold]",
                "",
                "",
                f"[bold]{show_epsilon(facts['total'])}{at}[/bold]",
                "",
                "",
            )
        table.add_section()
    return table


def _at(facts: dict[str, Any], shared: str = "") -> str:
    """At which delta, and under which adjacency, where that has not been said."""
    at = f" at δ = {facts['delta']:.3g}" if facts["delta"] else ""
    at += f" ({ZERO_OUT})" if facts["adjacency"] == ZERO_OUT else ""
    return "" if at == shared else at


def _when(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))

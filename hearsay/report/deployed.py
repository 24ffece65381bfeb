"""The report of a network that really ran (templates/deployed.html), from what its ledgers say:
rounds and budgets over time, who was skipped when, the certificate, where it all comes from.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from hearsay._files import write_atomically
from hearsay.certification import unit
from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.certificate import few, show
from hearsay.privacy.curve import ALL
from hearsay.report import plots
from hearsay.report.certificate import certificate_section
from hearsay.report.numbers import between, count, duration, instant, quantity
from hearsay.report.page import Picture, Table, picture, write
from hearsay.report.plot_style import axes_or_new, line_style, new_figure, plain_ticks, styled
from hearsay.report.provenance import configuration, software

if TYPE_CHECKING:
    from hearsay.deploy.history import AgentHistory, History

NAME, CSV = "report.html", "rounds.csv"
_LINES = 12  # more labelled lines than this cannot be told apart
_PAIRS = 40  # pairs of agents that a figure has room for


def deployed_report(history: History, folder: str | Path) -> Path:
    """Write report.html and rounds.csv into the folder; returns the page's path."""
    folder, network, plan = Path(folder), history.network, history.plan
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / CSV, to_csv(history).encode())
    elsewhere = [agent.name for agent in history.agents if not agent.messages]
    nobody = (
        "Nobody: under policy wait every agent waits for all its neighbours."
        if network.policy == "wait"
        else "Nobody was skipped."
    )
    return write(
        folder / NAME,
        "deployed.html",
        title=f"{plan.algorithm.name}, run {network.run}",
        about=(
            f"{count(plan.graph.agents, 'agent')} on a {plan.graph.name} graph,"
            f" {count(plan.messages, 'message')} from each,{_passed_on(history)}"
            f" {plan.certificate.mechanism.capitalize()} noise"
        ),
        headline=_headline(history),
        rehearsed=few([agent.name for agent in history.agents if agent.rehearsed], ", "),
        wrong=history.wrong,
        elsewhere=few(elsewhere, ", "),
        network=_network(history),
        agents=_agents(history),
        pictures=_pictures(history),
        patience=network.patience,
        skips=_skips(history),
        nobody=nobody,
        certificate=certificate_section(plan.certificate),
        configuration=configuration(plan.algorithm),
        provenance=_provenance(history),
        ledgers=_ledgers(history),
    )


def rounds_over_time(history: History, ax: Axes | None = None) -> Axes:
    """Messages of every agent over the time since the first of all."""
    ax, here = axes_or_new(ax), history.here
    begin = min(agent.at[0] for agent in here)
    span = max(agent.at[-1] for agent in here) - begin
    name, seconds = next(
        (name, size)
        for name, size in (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
        if span >= 3 * size or size == 1.0
    )
    with styled():
        for index, agent in enumerate(here):
            x = [(at - begin) / seconds for at in agent.at]
            ax.step(x, range(1, agent.messages + 1), where="post", **_line(index, agent, here))
        ax.set_xlabel(f"{name} since the first message")
        ax.set_ylabel("messages sent")
        _finish(ax, here)
    return ax


def budgets(history: History, ax: Axes | None = None) -> Axes:
    """What every agent had spent with each message."""
    ax, here = axes_or_new(ax), history.here
    what = unit(history.plan.algorithm)
    with styled():
        for index, agent in enumerate(here):
            ax.plot(range(1, agent.messages + 1), agent.spent, **_line(index, agent, here))
        ax.set_xlabel("message")
        ax.set_ylabel(f"{what} spent")
        _finish(ax, here)
    return ax


def skipped(history: History, ax: Axes | None = None) -> Axes:
    """One row for each agent and neighbour, with a mark for every round in which it was skipped."""
    ax, rows = axes_or_new(ax), list(_pairs(history).items())[:_PAIRS]
    with styled():
        for line, ((_, _), rounds) in enumerate(rows):
            ax.plot(rounds, [line] * len(rounds), "|", markersize=8, color=line_style(1)["color"])
        ax.set_yticks(range(len(rows)), [f"{name} without {other}" for (name, other), _ in rows])
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_xlim(0, history.plan.messages)
        ax.set_xlabel("round")
    return ax


def to_csv(history: History) -> str:
    """One row per agent and message."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["agent", "message", "at", "spent", "skipped_before"])
    for agent in history.agents:
        without: dict[int, list[str]] = {}
        for round, other in agent.skipped:
            without.setdefault(round + 1, []).append(other)
        for number, (at, spent) in enumerate(zip(agent.at, agent.spent, strict=True)):
            others = " ".join(without.get(number, []))
            writer.writerow([agent.name, number, f"{at:.3f}", f"{spent:.10g}", others])
    return text.getvalue()


def _line(index: int, agent: AgentHistory, here: list[AgentHistory]) -> dict[str, Any]:
    if len(here) > _LINES:
        return {"color": line_style(0)["color"], "alpha": 0.5, "linewidth": 0.8}
    # A name that starts with "_" would be left out of the legend.
    return {"label": f" {agent.name}", **line_style(index)}


def _finish(ax: Axes, here: list[AgentHistory]) -> None:
    ax.set_ylim(bottom=0)
    plain_ticks(ax)
    if len(here) <= _LINES:
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _headline(history: History) -> list[tuple[str, str, str]]:
    here, plan = history.here, history.plan
    sent, ended = sum(agent.messages for agent in here), sum(agent.done for agent in here)
    tiles = [
        (
            "Agents done",
            f"{ended} of {len(history.agents)}",
            f"{len(here)} of {len(history.agents)} have a ledger on this host",
        ),
        (
            "Messages",
            f"{sent:,}",
            f"of {plan.messages * len(here):,} that the agents on this host will send"
            + _relays(history),
        ),
    ]
    if not here:
        return tiles
    most = max(here, key=lambda agent: agent.spent[-1])
    at = f", at delta = {quantity(plan.certificate.slack)}" if plan.certificate.slack else ""
    what, collusion = unit(plan.algorithm), plan.certificate.collusion
    collude = f"; {collusion} (of the whole run)" if collusion else ""
    times = sum(len(agent.skipped) for agent in here)
    first, last = min(agent.at[0] for agent in here), max(agent.at[-1] for agent in here)
    return [
        *tiles,
        (f"Largest {what} so far", show(most.spent[-1]), f"{most.name}{at}{collude}"),
        ("Skipped", f"{times:,}", "times that an agent went on without a neighbour"),
        ("Time", duration(last - first), f"from {instant(first)} to {instant(last)}"),
    ]


def _network(history: History) -> dict[str, object]:
    graph, problem, network = history.plan.graph, history.plan.task, history.network
    figure, ax = new_figure(5.0, 3.9)
    plots.network(graph, ax, history.plan.certificate.epsilon)
    described = f"{graph.name} graph of {graph.agents} agents, coloured by epsilon"
    numbers = ", ".join(f"{i} {name}" for i, name in enumerate(network.names[:_PAIRS]))
    more = f", … and {graph.agents - _PAIRS:,} more" if graph.agents > _PAIRS else ""
    degree = graph.weights.indptr[1:] - graph.weights.indptr[:-1]
    model = (
        f"{type(problem.loss).__name__} loss, {count(problem.dimension, 'parameter')}, in the"
        f" {problem.domain}"
    )
    facts = [
        ("Graph", f"{graph.name}, {count(graph.edges, 'directed link')}"),
        ("Agents", numbers + more),
        ("Neighbours", f"{between(degree)} per agent"),
        ("Weights", f"{between(graph.weights.data)} per link" if graph.edges else "none"),
        ("Records", f"{between(problem.counts)} per agent"),
        ("Model", model),
        ("Policy", network.policy),
        *([("Fewer messages", history.plan.stopped)] if history.plan.stopped else []),
    ]
    caption = "Agents by number, in the order of net.toml."
    if (chosen := history.network.chosen) is not None:
        facts.append(("Settings", " ".join([chosen.words, *chosen.warnings])))
    return {"picture": picture("network", figure, caption, described), "facts": facts}


def _agents(history: History) -> Table:
    header = ["agent", "state", "messages", "first", "last", "spent", "certified in all"]
    known = any(agent.total is not None for agent in history.agents)
    rows: list[list[object]] = []
    cert = history.plan.certificate
    for agent, budget in zip(history.agents, cert.budgets, strict=True):
        state = "done" if agent.done else "not done" if agent.messages else "no ledger here"
        certified = show(budget.epsilon if budget.delta is None else budget.delta)
        certified += f" ({show(budget.all_collude)} if {ALL})" if budget.curve else ""
        some = agent.messages > 0
        rows.append(
            [
                agent.name,
                state,
                f"{agent.messages:,}" if some else None,
                instant(agent.at[0]) if some else None,
                instant(agent.at[-1]) if some else None,
                show(agent.spent[-1]) if some else None,
                certified,
                *([_total(agent)] if known else []),
            ]
        )
    return Table(
        f"What every agent did, in UTC, and the {unit(history.plan.algorithm)} of its messages,"
        " rounded up",
        [*header, "all runs of its records"] if known else header,
        rows,
    )


def _total(agent: AgentHistory) -> str | None:
    if agent.total is None:
        return None
    epsilon, delta = agent.total
    under = "" if agent.adjacency == REPLACE else f" ({agent.adjacency})"
    return show(epsilon) + (f" at delta = {quantity(delta)}" if delta else "") + under


def _pictures(history: History) -> list[Picture]:
    if not history.here:
        return []
    what = unit(history.plan.algorithm)
    rounds, rounds_ax = new_figure()
    spent, spent_ax = new_figure()
    rounds_over_time(history, rounds_ax)
    budgets(history, spent_ax)
    return [
        picture("rounds", rounds, "Messages of every agent over time."),
        picture("budget", spent, f"Certified {what} of the messages sent so far."),
    ]


def _pairs(history: History) -> dict[tuple[str, str], list[int]]:
    """The rounds in which an agent did without a neighbour; the most frequent pairs first."""
    found: dict[tuple[str, str], list[int]] = {}
    for agent in history.here:
        for round, other in agent.skipped:
            found.setdefault((agent.name, other), []).append(round)
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))


def _skips(history: History) -> dict[str, object]:
    """Empty where nobody was skipped."""
    pairs = _pairs(history)
    if not pairs:
        return {}
    figure, ax = new_figure(7.2, 0.9 + 0.24 * min(len(pairs), _PAIRS))
    skipped(history, ax)
    more = f" The {_PAIRS} most frequent of {len(pairs)} pairs." if len(pairs) > _PAIRS else ""
    rows = [
        [name, other, len(rounds), _ranges(rounds), instant(_after(history, name, rounds[-1]))]
        for (name, other), rounds in pairs.items()
    ]
    header = ["agent", "went on without", "times", "rounds", "last time"]
    return {
        "picture": picture("skips", figure, f"Rounds in which a neighbour was skipped.{more}"),
        "table": Table("Who was skipped, and when", header, rows),
    }


def _after(history: History, name: str, round: int) -> float:
    """When the agent's next message was written down; that of the round where there is none, as
    when a neighbour was silent in a relay.
    """
    at = next(agent.at for agent in history.agents if agent.name == name)
    return at[min(round + 1, len(at) - 1)]


def _passed_on(history: History) -> str:
    relays = history.plan.phases.relays
    return f" each passed on {count(relays, 'time')} (averaging)," if relays else ""


def _relays(history: History) -> str:
    """What was passed on, in words; nothing in a run without averaging."""
    relays = history.plan.phases.relays
    if not relays:
        return ""
    passed = sum(agent.relays for agent in history.here)
    return f"; {passed:,} relays of {relays * history.plan.messages * len(history.here):,} beside"


def _ranges(rounds: list[int]) -> str:
    """Runs of consecutive rounds, the first few of them."""
    runs: list[list[int]] = []
    for round in rounds:
        if runs and round == runs[-1][1] + 1:
            runs[-1][1] = round
        else:
            runs.append([round, round])
    return few([str(a) if a == b else f"{a}–{b}" for a, b in runs], ", ")


def _provenance(history: History) -> list[tuple[str, str]]:
    network = history.network
    return [
        ("Run", network.run),
        ("Configuration", f"sha256 {network.digest[:32]}, the hash that every message carries"),
        ("Weights", f"sha256 {history.plan.graph.digest()[:32]}"),
        ("State", few([member.state for member in network.members], ", ")),
        ("Page", f"read from ledgers, nothing was asked; {software()}"),
    ]


def _ledgers(history: History) -> Table:
    rows = [
        [agent.name, agent.instance, agent.version, f"{agent.sent:,}"] for agent in history.here
    ]
    header = ["agent", "instance", "hearsay that began it", "bytes of messages"]
    return Table("The ledgers on this host", header, rows)

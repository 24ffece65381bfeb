"""What a network did, offline: from net.toml and the ledgers that lie on this host.

Nothing is asked, nothing is written, and an agent that runs is not disturbed. A host has the
ledgers of its own agents only; the others are listed without one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hearsay.deploy import lifetime, phases
from hearsay.deploy.budget import sizes
from hearsay.deploy.deployment import Deployment, deployment
from hearsay.deploy.missing import checked
from hearsay.deploy.rows import LedgerError, Overview
from hearsay.deploy.settings import Member, Network, load
from hearsay.deploy.spending import examined
from hearsay.privacy.adjacency import REPLACE

# Another processor may round the last digits of a budget otherwise.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class AgentHistory:
    """What one agent's ledger says; without messages where there is no ledger on this host.

    Args:
      name: the agent's name.
      done: it has come to the end.
      at: when each message was written down, in seconds since 1970; relays are not among them.
      spent: what had been spent with each message.
      skipped: (round, neighbour) for every round in which the agent went on without one.
      sent: bytes of all messages and relays.
      version: the hearsay that began the ledger.
      instance: what tells this ledger from any other.
      rehearsed: its noise came from a seed.
      total: what the records have spent in all runs on this host, and the delta of that; None
        where there is no budget file.
      adjacency: what `total` is about (`lifetime.adjacency_of`).
      relays: how often the agent passed messages on (averaging).
    """

    name: str
    done: bool = False
    at: tuple[float, ...] = ()
    spent: tuple[float, ...] = ()
    skipped: tuple[tuple[int, str], ...] = ()
    sent: int = 0
    version: str = ""
    instance: str = ""
    rehearsed: bool = False
    total: tuple[float, float] | None = None
    adjacency: str = REPLACE
    relays: int = 0

    @property
    def messages(self) -> int:
        return len(self.at)


@dataclass(frozen=True)
class History:
    """A network and what its agents on this host did; `wrong` says what could not be read or does
    not fit together.
    """

    network: Network
    plan: Deployment
    agents: tuple[AgentHistory, ...]
    wrong: tuple[str, ...]

    @property
    def here(self) -> list[AgentHistory]:
        """The agents with messages on this host."""
        return [agent for agent in self.agents if agent.messages]


def read(config: Path, allowed: Sequence[str] = ()) -> History:
    """The history of the run that net.toml describes.

    Args:
      config: net.toml.
      allowed: as for `settings.load`.
    """
    network, wrong = load(config, allowed), list[str]()
    agents = tuple(_agent(member, network, wrong) for member in network.members)
    if not any(agent.messages for agent in agents) and not wrong:
        places = ", ".join(sorted({str(member.ledger.parent) for member in network.members}))
        raise FileNotFoundError(
            f"there is no ledger with a message of run {network.run} in {places}: look at a host"
            " on which an agent of it has run"
        )
    plan = deployment(network, None, rehearsed=any(agent.rehearsed for agent in agents))
    for agent, limit in zip(agents, sizes(plan.certificate), strict=True):
        if agent.messages and agent.spent[-1] > limit * (1 + _ROUNDING):
            wrong.append(
                f"{agent.name} has spent {agent.spent[-1]:.6g} by its ledger, and the certificate"
                f" of this net.toml says {limit:.6g} at most: another version made that plan"
            )
    return History(network, plan, agents, tuple(wrong))


def _agent(member: Member, network: Network, wrong: list[str]) -> AgentHistory:
    total, under = None, REPLACE
    try:
        if (book := checked(member.spent)).runs:
            total, under = lifetime.worst(book), lifetime.adjacency_of(book)
    except LedgerError as error:
        wrong.append(str(error))
    missing = AgentHistory(member.name, total=total, adjacency=under)
    if not member.ledger.exists():
        return missing
    try:
        ledger, behind = examined(member.ledger)
    except LedgerError as error:
        wrong.append(str(error))
        return missing
    wrong += [behind] if behind else []
    if not ledger.rows:
        return missing
    if ledger.about.get("configuration") != network.digest:
        wrong.append(
            f"{member.ledger} was begun with another configuration than this net.toml: draw it"
            " with the file that its agents had"
        )
        return missing
    return replace(_told(member.name, ledger), total=total, adjacency=under)


def _told(name: str, ledger: Overview) -> AgentHistory:
    rows, about = ledger.rows, ledger.about
    exchanges = phases.of_ledger(about)
    messages = rows[:: exchanges.count]
    # A row says whom the agent did without in the exchange before its message.
    skipped = dict.fromkeys(
        (exchanges.round(row.round - 1), who)
        for row in rows
        for who in json.loads(row.notes)["skipped"]
    )
    return AgentHistory(
        name,
        ledger.done,
        tuple(row.at for row in messages),
        tuple(row.epsilon for row in messages),
        tuple(skipped),
        sum(row.size for row in rows),
        str(about["version"]),
        str(about["instance"]),
        about.get("noise") != "lattice",
        relays=len(rows) - len(messages),
    )

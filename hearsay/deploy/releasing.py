"""The released model of deployed agents: from net.toml, which is public, and from the averages of
messages that lie on this host (averages.py). No ledger is opened, no record is read, nobody is
asked: it may be done while the agents run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.deploy.averages import Stored, kinds, stored
from hearsay.deploy.deployment import deployment
from hearsay.deploy.settings import Member, Network, load
from hearsay.privacy.certificate import few
from hearsay.release import predicting
from hearsay.release.model import ReleasedModel, how_made
from hearsay.release.of_run import require_shown
from hearsay.release.readouts import ReadOut, as_readout

REHEARSED = "NOT PRIVATE: the noise came from a seed, and whoever knows it can take it off again"


def release(
    config: Path,
    name: str | None = None,
    *,
    kind: Any = None,
    own: bool = False,
    rehearsal: bool = False,
    allowed: Sequence[str] = (),
) -> ReleasedModel:
    """The model that agents on this host may publish, as the run stands.

    Args:
      config: net.toml.
      name: one agent's, with those that it heard; None: the mean of all agents of the network
        that have run on this host.
      kind: "tail", or "exponential" (of models up to a megabyte); unless given what net.toml calls
        release in [run], and "tail" without.
      own: of one agent: of its own messages alone.
      rehearsal: allow a run whose noise came from a seed; the model says that it is NOT PRIVATE.
      allowed: as for `settings.load`.
    """
    network = load(config, allowed)
    readout = as_readout("kind", kind or network.config.release or "tail")
    members = network.members if name is None else (network.members[network.index(name)],)
    here = {m.name: _stored(m, network) for m in members if name or m.averages.exists()}
    if not here:
        places = ", ".join(sorted({str(member.state) for member in members}))
        raise FileNotFoundError(
            f"there are no averages of messages of run {network.run} in {places}: release on a"
            " host on which an agent of it has run"
        )
    rehearsed = any(one.about["noise"] != "lattice" for one in here.values())
    if rehearsed and not rehearsal:
        raise ValueError(
            f"a rehearsed run must not be released as a private one. {REHEARSED} (--rehearsal"
            " writes the model all the same, marked as such)"
        )
    plan = deployment(network, None, rehearsed=rehearsed)
    require_shown(plan.algorithm)
    for who, one in here.items():
        if one.about.get("plan") != plan.fingerprint:
            raise ValueError(
                f"the plan of run {network.run} must be the one that {who} has run by, got another:"
                " this version works out other noise from net.toml, and its certificate would not"
                " be that of the run. Release with the version that ran it"
            )
    alone = name is not None and not own
    found = {who: _read(who, one, readout, alone) for who, one in here.items()}
    return ReleasedModel(
        np.mean([params for params, _ in found.values()], axis=0),
        _words(network, {who: words for who, (_, words) in found.items()}, name),
        readout.name,
        plan.algorithm.name,
        plan.task.name,
        predicting.of(plan.task),
        plan.certificate,
        (REHEARSED,) if rehearsed else (),
        schema=plan.task.schema,
        made={**how_made(plan.algorithm, plan.messages, plan.graph.agents), "run": network.run},
    )


def _stored(member: Member, network: Network) -> Stored:
    if not member.averages.exists():
        raise FileNotFoundError(
            f"{member.averages} is not there: {member.name} has not run on this host, or has ended"
            " no round"
        )
    found = stored(member.averages)
    if found.about["configuration"] != network.digest or found.about["agent"] != member.name:
        raise ValueError(
            f"{member.averages} is of another configuration than this net.toml, or of another"
            " agent: release with the file that its agents had"
        )
    return found


def _read(who: str, one: Stored, wanted: ReadOut, with_heard: bool) -> tuple[np.ndarray, str]:
    """(the model, of which messages of whom)."""
    scope = "near" if with_heard and "near" in one.arrays else "own"
    if scope not in one.arrays:
        raise ValueError(
            f"name must be given for a model of this size, got none: only averages of an agent's"
            f" and its neighbours' messages are kept of it ({who})"
        )
    kept = kinds(one.arrays[scope][0].nbytes)
    if wanted not in kept:
        require.fail("kind", f"one that is kept of this model ({few(kept, ', ')})", wanted)
    heard = " and the agents that it heard" if scope == "near" else ""
    return one.read(scope)[
        wanted.name
    ], f"{wanted.of_rounds(one.rounds, one.first)} of {who}{heard}"


def _words(network: Network, each: dict[str, str], name: str | None) -> str:
    if name is not None:
        return each[name]
    rounds = {words.removesuffix(f" of {who}") for who, words in each.items()}
    whose = (
        f"all {len(each)} agents" if len(each) == len(network.names) else f"{few(list(each), ', ')}"
    )
    return f"{rounds.pop()} of {whose}" if len(rounds) == 1 else "; ".join(each.values())

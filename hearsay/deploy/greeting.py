"""What neighbours tell each other before any noise is added, and what is wrong with it, in words.

Every agent answers "hello" with its configuration, its `instance` (the random name of its ledger),
the instances that it has met, the last round that it has heard of each, and whether its noise is
real. From that a process learns that all agree, that its neighbours take it for the agent and
nobody else, that they have heard nothing from it that it does not know of, and that not one of
them rehearses while another does not.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hearsay.deploy.settings import difference

log = logging.getLogger("hearsay.agent")
# Characters of an instance, which is kept and told to others: theirs would not be heard
# over a long one.
_LONGEST = 64


class Hello(NamedTuple):
    """The part of an answer that matters here."""

    config: str
    public: Any
    instance: str
    instances: dict[str, str]
    heard: dict[str, int]
    private: bool


def read(name: str, answer: bytes) -> Hello | None:
    """None where the answer makes no sense."""
    try:
        given = json.loads(answer)
        found = Hello(*(given[field] for field in Hello._fields))
        texts = all(
            isinstance(text, str)
            for text in (found.config, found.instance, *found.instances.values())
        )
        if (
            not texts
            or len(found.instance) > _LONGEST
            or not all(type(step) is int for step in found.heard.values())
            or not isinstance(found.private, bool)
        ):
            raise TypeError
        return found
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        log.warning("%s sends an answer that cannot be read", name)
        return None


def disagreement(name: str, ours: Mapping[str, Any], theirs: Any) -> str:
    what = difference(ours, theirs) if isinstance(theirs, dict) else "it does not say in what"
    return f"{name} has another configuration: {what}. Nothing was sent"


def rehearsal(name: str, theirs: bool) -> str:
    """Why agents of which only one adds real noise must not run together."""
    who = "this process" if theirs else name
    return (
        f"{who} adds noise from a seed (--simulate-noise), and"
        f" {name if theirs else 'this process'} adds real noise: what they send together is not"
        " private, and would be released as if it were. Start all of them with --simulate-noise, or"
        " none. Nothing was sent"
    )


def impostor(me: str, mine: str, known_as: str | None, name: str, met: str, instance: str) -> str:
    """Why this process, or that neighbour, is not the one that others have met;
    empty where all is well.
    """
    if known_as not in (None, mine):
        return (
            f"{name} knows another process as {me}: it runs elsewhere, or this is not its latest"
            " ledger. Two of them would add noise to everything twice, which no certificate covers."
            " End the other one, or begin a run with a new name"
        )
    if met != instance:
        return (
            f"{name} is no longer the process that it was: it has lost its ledger, or runs twice."
            " Begin a run with a new name"
        )
    return ""


def outdated(me: str, ledger: Path, last: int, name: str, heard: int) -> str:
    return (
        f"{name} has heard message {heard} of {me}, and the ledger {ledger} ends with message"
        f" {last}: it is not the latest one. Going on would add noise to rounds twice, which no"
        " certificate covers. Find the latest ledger, or begin a run with a new name"
    )

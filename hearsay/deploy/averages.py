"""Averages of what an agent has sent and heard, in a file beside its ledger: what it may release.

After every round the averages of release/readouts.py move on, of two things:

    own     the model that the agent's own messages show
    near    the mean of that and of the models that it heard in the round, each with the same weight

Both are made of messages (bytes that have left, bytes that were heard): nothing of the agent's
state is in the file, so that `hearsay network release` reads this file and not the ledger. It is as
public as the messages are; like everything of an agent it is readable by its owner only.

The file is rewritten in every round and renamed into place, but not synced: what a kill leaves is
whole, and what a power failure takes may be done without. Where it is missing, damaged, of another
ledger or behind, averages begin anew and say with which message (not where a model follows from all
messages since the first, `Algorithm.remembers`). One that is a round ahead of the ledger (a kill
between the two) is not moved on twice.

Large models (more than a megabyte) are averaged as `near` tails only. Messages of agents that sleep
(A(DP)2SGD, gossip) are empty for most of them: `near` is not kept there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hearsay.base import Algorithm, Inbox
from hearsay.release.readouts import Exponential, ReadOut, Tail, read
from hearsay.release.tensors import pack, unpack

if TYPE_CHECKING:
    from hearsay.deploy.inbox import Listener
    from hearsay.deploy.mailbox import Fields
    from hearsay.deploy.settings import Member
    from hearsay.deploy.steps import Steps

log = logging.getLogger("hearsay.agent")
FORMAT = "hearsay averages 1"
_LARGE = 2**20  # bytes of a model


def kinds(size: int) -> tuple[ReadOut, ...]:
    """Those that are kept of models of so many bytes."""
    return (Tail(), Exponential()) if size <= _LARGE else (Tail(),)


def scopes(algorithm: Algorithm, size: int) -> tuple[str, ...]:
    """What is averaged: "own", "near" or both."""
    if algorithm.remembers:
        return ("own",)
    return ("own", "near") if size <= _LARGE else ("near",)


@dataclass(frozen=True)
class Stored:
    """What is in the file.

    Args:
      about: run, configuration, agent, instance, noise, and a fingerprint of the plan.
      first: the round that the averages begin with.
      rounds: how many rounds are in them.
      arrays: (slot, d) for each scope, and the last model that was shown, where it is needed.
    """

    about: dict[str, str]
    first: int
    rounds: int
    arrays: dict[str, np.ndarray]

    @property
    def next(self) -> int:
        """The round that comes next."""
        return self.first + self.rounds

    def read(self, scope: str) -> dict[str, np.ndarray]:
        """What every read-out has found, by name."""
        slots = self.arrays[scope]
        return read(kinds(slots[0].nbytes), slots, self.rounds, axis=0)


class Averages:
    """The averages of one agent, moved on after every round."""

    def __init__(self, member: Member, steps: Steps, listen: Listener) -> None:
        self._path, self._steps, self._listen = member.averages, steps, listen
        algorithm, task = steps.algorithm, steps.task
        first = np.asarray(task.first_models[steps.agent], steps.dtype)
        self._start = np.asarray(task.domain.project(first), steps.dtype)
        self._kinds = kinds(first.nbytes) if algorithm.shows else ()
        self._scopes = scopes(algorithm, first.nbytes)
        self._complained = False

    def begin(self, about: dict[str, str], step: int) -> None:
        """Where an agent whose next round is `step` goes on."""
        if not self._kinds:
            return
        found = None
        if self._path.exists():
            try:
                found = stored(self._path)
            except (ValueError, OSError) as error:
                log.warning("averages for a release begin anew: %s", error)
        if found is None or found.about != about or found.next not in (step, step + 1):
            found = Stored(about, step, 0, self._fresh())
            if step and self._steps.algorithm.remembers:
                log.warning(
                    "there will be no averages for a release: %s has none of the first %d rounds,"
                    " and the model follows from all of them",
                    self._path,
                    step,
                )
                self._kinds = ()
        self._now = found

    def _fresh(self) -> dict[str, np.ndarray]:
        slots = sum(kind.slots for kind in self._kinds)
        found = {scope: np.tile(self._start, (slots, 1)) for scope in self._scopes}
        return found | ({"model": self._start} if self._steps.algorithm.remembers else {})

    def add(self, step: int, sent: Any, inbox: Inbox, heard: Mapping[int, Fields]) -> None:
        """One more round: what was sent and heard, as `update` gets it."""
        if not self._kinds or step < self._now.next:
            return
        now, algorithm = self._now, self._steps.algorithm
        number = np.array([now.rounds])
        keep, add = np.concatenate([kind.weights(number) for kind in self._kinds], axis=2)[0]
        shown = {"own": self._steps.shown(step, now.arrays.get("model"), sent, inbox)}
        if "near" in self._scopes:
            shown["near"] = self._listen.together(sent, heard)
        arrays = {
            scope: (keep[:, None] * now.arrays[scope] + add[:, None] * shown[scope]).astype(
                self._steps.dtype
            )
            for scope in self._scopes
        }
        if algorithm.remembers:
            arrays["model"] = shown["own"]
        self._now = Stored(now.about, now.first, now.rounds + 1, arrays)
        self._save()

    def _save(self) -> None:
        now = self._now
        facts = {"format": FORMAT, **now.about, "first": str(now.first), "rounds": str(now.rounds)}
        facts["digest"] = _digest(facts, now.arrays)
        beside = self._path.with_name(self._path.name + ".partial")
        try:
            handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.writelines(pack(now.arrays, facts))
            os.replace(beside, self._path)
        except OSError as error:
            # A release is not worth a run.
            if not self._complained:
                log.warning("averages for a release cannot be written: %s", error)
            self._complained = True


def stored(path: Path) -> Stored:
    """What is in that file; ValueError where it is damaged."""
    arrays, facts = unpack(path.read_bytes(), str(path))
    if facts.get("format") != FORMAT:
        raise ValueError(f"{path} must be {FORMAT}, got {facts.get('format')}")
    if facts.pop("digest", "") != _digest(facts, arrays):
        raise ValueError(f"{path} is damaged: it is not as it was written (its digest)")
    first, rounds = int(facts.pop("first")), int(facts.pop("rounds"))
    del facts["format"]
    return Stored(facts, first, rounds, arrays)


def _digest(facts: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.shape} {array.dtype.str}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()

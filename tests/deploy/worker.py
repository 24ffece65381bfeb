"""One agent as a process of its own.

Processes are forked from a server that has imported everything once, so that they start quickly.

`hold` keeps a process from publishing the message of that round, for as long as it lives: a file
tells that it is there. `kills` lets a process kill itself (SIGKILL, nothing is flushed or closed)
at given points of given exchanges (rounds, where there are no relays), each once: what has been
used up is kept in a file. `witness` is a file to which every payload is written, as a hash, just
before it is handed to the network, with how and when: what left, whatever happened then. `capture`
is a folder for the payloads themselves, and for the whole numbers that shared noise was made of
(captures.py). `attack` and `weak` change the agent (attackers.py).
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hearsay.cli.agent import _ended
from hearsay.deploy import ledger
from hearsay.deploy.agent import Agent
from hearsay.deploy.erasable import Erasable
from hearsay.deploy.gossip import Gossip
from hearsay.deploy.host import Stopped, save_model
from hearsay.deploy.ledger import Ledger, LedgerError
from hearsay.deploy.lifetime import Account
from hearsay.deploy.mailbox import Mailbox
from hearsay.deploy.privatize import Lattice
from hearsay.deploy.secrets import PairSecrets
from hearsay.deploy.settings import load
from hearsay.deploy.transport import Transport
from hearsay.mechanisms import lattice, shared_lattice
from hearsay.simulation.simulating import enable_compilation_cache

POINTS = ("before ledger", "in ledger", "after ledger", "after publish", "waiting", "after update")


def run(
    name: str,
    seed: int | None,
    configs: Sequence[str],
    log: str,
    kills: Sequence[tuple[int, str]] = (),
    witness: str | None = None,
    hold: int | None = None,
    large: int | None = None,
    capture: str | None = None,
    attack: str | None = None,
    weak: str | None = None,
) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    jax.config.update("jax_enable_x64", True)
    enable_compilation_cache()
    # The same small programs in every process.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if large is not None:
        ledger._LARGE = large  # so that small messages take the way of large ones
    if capture is not None:
        _capture(Path(capture), name)
    if weak is not None or attack is not None:
        from tests.deploy import attackers

        if weak is not None:
            attackers.weaken(weak)
        if attack is not None:
            attackers.arm(attack, name, configs[0])
    if kills:
        _arm(kills, Path(log + ".kills"))
    if witness:
        _record(Path(witness), name)
    if hold is not None:
        _hold(hold, Path(log + ".held"))
    for config in configs:
        try:
            agent = Agent(load(config), name, rehearsal=seed, no_privacy=True)
            model = agent.run()
        except (Stopped, LedgerError) as ended:
            sys.exit(_ended(ended).exit_code)
        save_model(agent.member.state, name, model, agent.plan)
        Path(agent.member.state, f"{name}.subscribed.json").write_text(json.dumps(agent.subscribed))


def _arm(kills: Sequence[tuple[int, str]], used: Path) -> None:
    done = (
        {tuple(json.loads(line)) for line in used.read_text().splitlines()}
        if used.exists()
        else set()
    )
    left = {tuple(kill) for kill in kills} - done

    def die_at(step: int, point: str) -> None:
        if (step, point) in left:
            with open(used, "a") as file:
                file.write(json.dumps([step, point]) + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(kind: type, method: str, before: str = "", after: str = "") -> None:
        plain = getattr(kind, method)

        def wrapped(self: Any, step: int, *args: Any, **options: Any) -> Any:
            die_at(step, before)
            result = plain(self, step, *args, **options)
            die_at(step, after)
            return result

        setattr(kind, method, wrapped)

    wrap(Agent, "_commit", before="before ledger", after="after ledger")
    wrap(Agent, "_publish", after="after publish")
    wrap(Agent, "_update", after="after update")
    wrap(Agent, "_relay", after="after update")
    wrap(Ledger, "_store", after="in ledger")  # after the statements, before COMMIT
    wrap(Mailbox, "wait", after="waiting")
    wrap(PairSecrets, "committed", before="before erasing", after="after erasing")
    # Before the first message, once each: `step` counts how often it was called.
    # And where records arrive, with every arrival.
    counted = (
        (Erasable, "write"),
        (Ledger, "keep"),
        (Gossip, "gather"),
        (Account, "enter"),
        (Ledger, "pin_rows"),
    )
    for kind, method in counted:
        wrap_counted(kind, method, die_at)


def wrap_counted(kind: type, method: str, die_at: Callable[[int, str], None]) -> None:
    plain, calls = getattr(kind, method), itertools.count()

    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        number = next(calls)
        die_at(number, f"before {method}")
        result = plain(self, *args, **options)
        die_at(number, f"after {method}")
        return result

    setattr(kind, method, wrapped)


def _capture(folder: Path, name: str) -> None:
    """Of what is drawn twice for one message, because of a death before it was in the ledger, the
    last is kept.
    """
    own, shared = list[np.ndarray](), list[np.ndarray]()
    publish, outbox, noised = Transport.publish, Agent._outbox, Lattice._noised_shared

    def noted(drawn: list[np.ndarray], plain: Callable[..., np.ndarray]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> np.ndarray:
            drawn.append(plain(*args))
            return drawn[-1]

        return wrapped

    def kept(self: Lattice, step: int, field: str, value: np.ndarray, scale: Any) -> np.ndarray:
        own.clear()
        shared.clear()
        found = noised(self, step, field, value, scale)
        with io.BytesIO() as file:
            np.savez(file, value=value, own=own[0].ravel(), shared=np.array(shared))
            _place(folder / f"{name}.{step}.{field}.npz", file.getvalue())
        return found

    def place(step: int, payload: bytes) -> None:
        digest = hashlib.sha256(payload).hexdigest()[:16]
        _place(folder / f"{name}.{step}.{digest}.message", payload)

    def published(self: Transport, round: int, payload: bytes) -> None:
        place(round, payload)
        publish(self, round, payload)

    def answered(self: Agent, step: int) -> bytes | None:
        if (found := outbox(self, step)) is not None:
            place(step, found)
        return found

    lattice.discrete_gaussian = noted(own, lattice.discrete_gaussian)  # type: ignore[assignment]
    shared_lattice.shared_noise = noted(shared, shared_lattice.shared_noise)  # type: ignore[assignment]
    Lattice._noised_shared, Agent._outbox = kept, answered  # type: ignore[method-assign]
    Transport.publish = published  # type: ignore[method-assign]


def _place(path: Path, content: bytes) -> None:
    """Whole, or not at all, whichever thread it is."""
    draft = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.draft")
    draft.write_bytes(content)
    draft.rename(path)


def _record(path: Path, name: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(step: int, payload: bytes, how: str) -> None:
        digest = hashlib.sha256(payload).hexdigest()
        os.write(handle, f"{name} {step} {digest} {how} {time.monotonic()}\n".encode())

    publish, outbox = Transport.publish, Agent._outbox

    def published(self: Transport, round: int, payload: bytes) -> None:
        note(round, payload, "sent")
        publish(self, round, payload)

    def answered(self: Agent, step: int) -> bytes | None:
        found = outbox(self, step)
        if found is not None:
            note(step, found, "answered")
        return found

    Transport.publish, Agent._outbox = published, answered  # type: ignore[method-assign]


def _hold(round: int, held: Path) -> None:
    plain = Agent._publish

    def publish(self: Agent, step: int, payload: bytes) -> None:
        if step == round:
            held.touch()
            signal.pause()
        plain(self, step, payload)

    Agent._publish = publish  # type: ignore[method-assign]

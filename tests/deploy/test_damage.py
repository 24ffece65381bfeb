"""Bytes on disk change, and ends of files are lost, while all agents are down: an agent either
refuses in words or goes on as if nothing had been lost.

Nobody else is asked here: in a power cut of a whole network the neighbours may not have written
down what they heard.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import pytest

from hearsay.cli.agent import _ended
from hearsay.deploy import ledger as module
from hearsay.deploy import mark
from hearsay.deploy.ledger import Ledger, LedgerError, LedgerUnavailable
from hearsay.deploy.rows import overview
from hearsay.deploy.settings import load
from tests.deploy.networks import NAMES, Processes, write

ABOUT = {"run": "wards", "agent": "alice", "configuration": "c" * 64, "noise": "lattice"}
ROUNDS = 24


class Sent:
    """What has left: an agent at the level of its ledger, whose messages are fresh noise every
    time they are drawn.
    """

    def __init__(self) -> None:
        self.messages: dict[int, bytes] = {}
        self.let_go = 0

    def goes_on(self, ledger: Ledger, rounds: int) -> None:
        entry = ledger.last()
        for round in range(0 if entry is None else entry.round + 1, rounds):
            # Every fourth message is a large one, in a file of its own.
            payload, secret = (
                os.urandom(3000 if round % 4 == 3 else 300),
                os.urandom(32) if round % 2 else b"",
            )
            state = {"x": np.arange(100.0 if round % 8 < 4 else 10.0) + round}
            ledger.commit(
                round, payload, epsilon(round), {"heard": {"bob": round}}, state, secret, round - 8
            )
            self.let_go = max(self.let_go, round - 8)
            self.publish(round, payload)

    def publish(self, round: int, payload: bytes) -> None:
        assert self.messages.setdefault(round, payload) == payload, (
            f"message {round} got noise twice"
        )

    def starts_again(self, path: Path, rounds: int) -> None:
        """As agent.py does: the last message is sent again, others when they are asked for."""
        with Ledger(path, ABOUT) as ledger:
            entry, secrets = ledger.last(), ledger.secrets()
            newest = -1 if entry is None else entry.round
            if entry is not None:
                self.publish(entry.round, entry.payload)
                np.testing.assert_array_equal(entry.arrays["x"][:10], np.arange(10.0) + entry.round)
            assert newest >= max(self.messages, default=-1), (
                "it would add noise again to a message that has left"
            )
            assert [(r, e) for r, e, _ in ledger.history()] == [
                (r, epsilon(r)) for r in range(newest + 1)
            ], "counted"
            assert sorted(secrets) == list(range(1, newest + 1, 2))
            assert ledger.heard() == ({"bob": newest} if newest >= 0 else {})
            for round in range(newest + 1):
                if (kept := ledger.message(round)) is not None:
                    self.publish(round, kept)
                else:
                    assert round < self.let_go, "it was never discarded"
            self.goes_on(ledger, rounds)

    def copy(self) -> Sent:
        other = Sent()
        other.messages, other.let_go = dict(self.messages), self.let_go
        return other


def epsilon(round: int) -> float:
    return 0.1 * (round + 1)


def damage(folder: Path, rng: random.Random) -> str:
    """One random change of one file of the folder, whichever it is."""
    file = rng.choice(
        sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    )
    content = bytearray(file.read_bytes())
    kind = rng.choice(("bytes", "bytes", "start", "block", "tail", "cut", "empty"))
    if kind in ("bytes", "start"):  # the start of a file or of a slot is where most is to be lost
        reach = min(len(content), 4096 + 100) if kind == "start" else len(content)
        for _ in range(rng.randint(1, 4)):
            place = (
                rng.randrange(reach)
                if kind == "bytes"
                else rng.choice((0, reach // 4096 * 4096 % reach)) + rng.randrange(100)
            )
            content[min(place, len(content) - 1)] ^= rng.randint(1, 255)
    elif kind == "block":
        place = rng.randrange(len(content)) // 512 * 512
        content[place : place + 512] = bytes(len(content[place : place + 512]))
    else:
        lost = {
            "tail": rng.randint(1, 63),
            "cut": rng.randint(1, len(content)),
            "empty": len(content),
        }[kind]
        del content[-min(lost, len(content)) :]
    file.write_bytes(bytes(content))
    return f"{kind} of {file.name}"


def snapshots(folder: Path) -> list[tuple[Path, Sent]]:
    """The folder as it lies there when the process is killed, after every few messages."""
    sent, found, live = Sent(), [], folder / "live"
    with Ledger(live / "alice.ledger", ABOUT) as ledger:
        for rounds in range(0, ROUNDS + 1, 3):
            sent.goes_on(ledger, rounds)
            shutil.copytree(live, folder / f"killed-{rounds}")
            found.append((folder / f"killed-{rounds}", sent.copy()))
    shutil.copytree(live, folder / "closed")  # ended well: everything is in the main file
    return [*found, (folder / "closed", sent)]


def trials(folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int, count: int) -> tuple[int, int]:
    """How often it was refused, and how often it went on."""
    monkeypatch.setattr(module, "_LARGE", 700)
    kept, rng, refused = snapshots(folder), random.Random(f"damage {seed}"), 0
    for number in range(count):
        killed, sent = rng.choice(kept)
        trial, what, sent = folder / "trial", "", sent.copy()
        shutil.copytree(killed, trial)
        try:
            for _ in range(1 if number % 3 else 2):
                what += f" {damage(trial, rng)};"
            try:
                sent.starts_again(trial / "alice.ledger", ROUNDS + 2)
                sent.starts_again(trial / "alice.ledger", ROUNDS + 4)
            except LedgerError as error:
                assert "alice.ledger" in str(error) and len(str(error)) > 40, error
                refused += 1
        except BaseException as error:
            error.add_note(f"trial {number} of seed {seed}: {killed.name},{what}")
            raise
        shutil.rmtree(trial)
    return refused, count - refused


@pytest.fixture
def folder(tmp_path):
    """In memory where there is such a folder: thousands of syncs would take most of the time,
    and nothing here rests on them.
    """
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        dir=memory if os.access(memory, os.W_OK) else tmp_path
    ) as found:
        yield Path(found)


def test_damage_is_refused_or_changes_nothing(folder, monkeypatch):
    refused, went_on = trials(folder, monkeypatch, 0, 100)
    assert refused > 30 and went_on > 10, (refused, went_on)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_much_damage_is_refused_or_changes_nothing(folder, monkeypatch, seed):
    refused, went_on = trials(folder, monkeypatch, seed, 200)
    assert refused > 60 and went_on > 20, (refused, went_on)


@pytest.fixture
def path(folder):
    return folder / "state" / "alice.ledger"


def after(path: Path, rounds: int) -> Sent:
    """A ledger that was closed after so many messages."""
    sent = Sent()
    with Ledger(path, ABOUT) as ledger:
        sent.goes_on(ledger, rounds)
    return sent


def crash_at_mark(path: Path, sent: Sent, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    """One more commit, of whose mark only so many bytes reach the disk;
    that message has not left.
    """
    plain = os.pwrite

    def torn(handle: int, content: bytes, place: int) -> int:
        plain(handle, content[:written], place)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, Ledger(path, ABOUT) as ledger:
        patch.setattr(os, "pwrite", torn)
        with pytest.raises(KeyboardInterrupt):
            ledger.commit(
                len(sent.messages),
                b"not sent",
                epsilon(len(sent.messages)),
                {"heard": {"bob": 9}},
                {},
            )


@pytest.mark.parametrize("written", [0, 1, 40, 71])
@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_a_crash_before_or_within_the_mark(path, monkeypatch, rounds, written):
    """The message is in the ledger, has not left, and is sent as it is;
    and so it goes if that happens again and again.
    """
    sent = after(path, rounds)
    for _ in range(3):
        crash_at_mark(path, sent, monkeypatch, written)
        with Ledger(path, ABOUT) as ledger:
            entry = ledger.last()
            assert entry is not None and (entry.round, entry.payload) == (
                len(sent.messages),
                b"not sent",
            )
            sent.publish(entry.round, entry.payload)
    with Ledger(path, ABOUT) as ledger:
        sent.goes_on(ledger, rounds + 6)
    assert sorted(sent.messages) == list(range(rounds + 6))


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("rounds", [5, 6])
def test_a_damaged_slot_and_a_ledger_that_lost_a_message(path, rounds, slot):
    """Which message the slot named is not known: the ledger must be ahead of the other one."""
    after(path, rounds)
    older = path.read_bytes()
    with Ledger(path, ABOUT) as ledger:
        Sent().goes_on(ledger, rounds + 1)
    content = bytearray(mark.place(path).read_bytes())
    content[4096 * slot + 20] ^= 1
    mark.place(path).write_bytes(bytes(content))
    path.write_bytes(older)
    with pytest.raises(
        LedgerError,
        match=(
            rf"ends with message {rounds - 1}, and message \d may have left: it is not the"
            r" latest one"
        ),
    ):
        Ledger(path, ABOUT)


def test_a_ledger_that_is_behind_its_mark(path):
    after(path, 5)
    older = path.read_bytes()
    with Ledger(path, ABOUT) as ledger:
        Sent().goes_on(ledger, 7)
    path.write_bytes(older)
    for _ in range(2):  # and looking does not make it better
        with pytest.raises(
            LedgerError,
            match="ends with message 4, and message 6 may have left: it is not the latest one",
        ):
            Ledger(path, ABOUT)


def test_a_ledger_that_is_gone_while_its_mark_is_left(path):
    after(path, 2)
    path.unlink()
    for _ in range(2):
        with pytest.raises(LedgerError, match="is empty or was deleted, and message 1 has left"):
            Ledger(path, ABOUT)


def test_before_the_first_message_a_lost_ledger_is_made_again_with_the_same_instance(path):
    """Neighbours know the instance already, and nothing was noised."""
    with Ledger(path, ABOUT) as ledger:
        instance = ledger.instance
    path.unlink()
    with Ledger(path, ABOUT) as ledger:
        assert ledger.instance == instance == mark.instance_of(path)


@pytest.mark.parametrize("rounds", [0, 3])
def test_a_mark_that_is_gone(path, rounds):
    after(path, rounds)
    mark.place(path).unlink()
    with pytest.raises(LedgerError, match="alice.ledger.mark is not there"):
        Ledger(path, ABOUT)


def test_a_mark_that_is_damaged_in_both_slots(path):
    after(path, 3)
    content = mark.place(path).read_bytes()
    for wrong in (
        bytes(8192),
        content[:8191],
        content + b"\0",
        content[4096:] + content[:4096],
        b"",
    ):
        mark.place(path).write_bytes(wrong)
        with pytest.raises(LedgerError, match="alice.ledger.mark is damaged"):
            Ledger(path, ABOUT)


def test_a_mark_that_was_put_back(path):
    sent = after(path, 3)
    older = mark.place(path).read_bytes()
    with Ledger(path, ABOUT) as ledger:
        sent.goes_on(ledger, 5)
    mark.place(path).write_bytes(older)
    with pytest.raises(LedgerError, match="and its mark disagree about message 2"):
        Ledger(path, ABOUT)


def test_a_mark_of_another_ledger_or_another_past(path):
    after(path, 3)
    other = path.parent.parent / "other" / path.name
    after(other, 3)
    ours = mark.place(path).read_bytes()
    mark.place(path).write_bytes(mark.place(other).read_bytes())
    with pytest.raises(LedgerError, match="of different ledgers"):
        Ledger(path, ABOUT)
    mark.place(path).write_bytes(ours)
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM rounds WHERE round = 1")
    db.close()
    with pytest.raises(LedgerError, match="the row of message 1 in .* is damaged"):
        Ledger(path, ABOUT)


COLUMNS = [
    ("rounds", "epsilon", 0.01),
    ("rounds", "notes", '{"heard": {}}'),
    ("rounds", "notes", "{nonsense"),
    ("rounds", "secret", b"x"),
    ("rounds", "at", 1.0),
    ("rounds", "size", 5),
    ("rounds", "checksum", bytes(16)),
    ("rounds", "state", bytes(16)),
    ("rounds", "seal", bytes(16)),
    ("rounds", "round", 77),
    ("rounds", "place", "message-9"),
    ("rounds", "place", "a\0b"),
    ("rounds", "place", 7),
    ("rounds", "place", b"message-3"),
    ("rounds", "epsilon", "text"),
    ("state", "round", 0),
    ("state", "done", 1),
    ("state", "checksum", bytes(16)),
    ("state", "place", "message-3"),
    ("state", "seal", b""),
    ("about", "value", "x"),
    ("about", "value", 7),
]


@pytest.mark.parametrize(("table", "column", "value"), COLUMNS)
def test_every_column_is_sealed(path, table, column, value):
    after(path, 4)
    where = "WHERE key = 'secret'" if table == "about" else "WHERE round = 3"
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE {table} SET {column} = ? {where}", (value,))
    db.close()
    with pytest.raises(LedgerError, match="alice.ledger is damaged"), Ledger(path, ABOUT) as ledger:
        ledger.last()


def test_a_state_of_another_round_is_noticed(path):
    """An old page of the state's table, whole in itself, or the old one of the two files."""
    with Ledger(path, ABOUT) as ledger:
        ledger.commit(0, b"first", 0.1, {}, {"x": np.zeros(3)})
        (row,) = ledger._db.execute("SELECT * FROM state")
        ledger.commit(1, b"second", 0.2, {}, {"x": np.ones(3)})
        ledger._db.execute("REPLACE INTO state VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        with pytest.raises(
            LedgerError, match="the state in .* is damaged .it does not belong to the last message"
        ):
            ledger.last()


@pytest.mark.parametrize("change", ["sign", "swap", "page"])
def test_what_a_sum_of_words_does_not_notice(path, change):
    """The sign of a number, two numbers that changed places, two pages that did."""
    payload = bytearray(os.urandom(400_000))
    with Ledger(path, ABOUT) as ledger:
        ledger.commit(0, bytes(payload), 0.1, {}, {})
    if change == "sign":
        payload[80_007] ^= 0x80
    elif change == "swap":
        payload[800:808], payload[160_000:160_008] = payload[160_000:160_008], payload[800:808]
    else:
        payload[4096:8192], payload[40960:45056] = payload[40960:45056], payload[4096:8192]
    (path.with_name("alice.ledger.large") / "message-0").write_bytes(bytes(payload))
    with (
        Ledger(path, ABOUT) as ledger,
        pytest.raises(LedgerError, match="message 0 in .* is damaged"),
    ):
        ledger.last()


def test_what_may_be_tried_again(path, monkeypatch):
    """A database that somebody locks, a folder that may not be written: exit code 5, not 6."""
    sent = after(path, 2)
    with Ledger(path, ABOUT) as ledger:
        ledger._db.execute("PRAGMA busy_timeout = 1")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            LedgerUnavailable,
            match="locked.: message 2 was not sent. See to the disk, and start this agent again",
        ):
            sent.goes_on(ledger, 3)
        other.close()
        ledger._db.execute("PRAGMA query_only = ON")
        with pytest.raises(LedgerUnavailable, match="readonly database.: message 2 was not sent"):
            sent.goes_on(ledger, 3)
    with monkeypatch.context() as patch:
        # A disk that fails below the mark.
        patch.setattr(os, "fdatasync", lambda handle: os.pread(-1, 1, 0))
        with Ledger(path, ABOUT) as ledger:
            with pytest.raises(LedgerUnavailable, match="message 2 was not sent"):
                sent.goes_on(ledger, 3)
            assert ledger.message(2) is None, "nor does a neighbour get it that asks for it"
            assert ledger.message(1) == sent.messages[1]
    assert max(sent.messages) == 1
    sent.starts_again(path, 2)  # message 2 is in the ledger, and leaves only now
    assert max(sent.messages) == 2


def test_exit_codes():
    """What passes is tried again by a service manager, what does not waits for a person."""
    assert _ended(LedgerUnavailable("the disk is full")).exit_code == 5
    assert _ended(LedgerError("it is damaged")).exit_code == 6


@pytest.mark.slow
def test_real_agents_after_a_power_cut_of_them_all(tmp_path):
    """All are killed right after a message that no neighbour has written down;
    then one of them loses the end of its log, or other bytes.
    """
    names, steps, cut = NAMES[:3], 14, 8
    base, rng = tmp_path / "base", random.Random("power cut")
    config = write(base, names=names, graph={"kind": "complete"}, run_table={"steps": steps})
    options = {"seed": None, "names": names}
    with Processes(
        [config],
        kills={name: [(cut, "after publish")] for name in names},
        witness=str(base / "witness"),
        **options,
    ) as fleet:
        fleet.start_all()
        for process in fleet.running.values():
            process.join(60)
            assert process.exitcode == -signal.SIGKILL, [fleet.tail(name) for name in names]
    states = load(config).members[0].state
    ends = {name: overview(states / f"{name}.ledger") for name in names}
    heard = {
        name: [
            json.loads(end.rows[-1].notes)["heard"][name] for n, end in ends.items() if n != name
        ]
        for name in names
    }
    victim = next(name for name in names if max(heard[name]) < cut)
    refused = 0
    for trial in range(5):
        folder = tmp_path / f"trial-{trial}"
        shutil.copytree(base, folder)
        state = folder / states.relative_to(base)
        if trial == 0:
            wal = state / f"{victim}.ledger-wal"
            wal.write_bytes(wal.read_bytes()[:-40])
        else:
            for file in [
                path for path in state.iterdir() if not path.name.startswith(f"{victim}.ledger")
            ]:
                file.rename(folder / file.name)
            damage(state, rng)
            for file in folder.glob("*.ledger*"):
                file.rename(state / file.name)
        with Processes([folder / config.name], witness=str(folder / "witness"), **options) as fleet:
            fleet.start_all()
            ended = fleet.running[victim]
            ended.join(60)
            assert ended.exitcode in (0, 5, 6), fleet.tail(victim)
            refused += ended.exitcode != 0
            assert trial or (
                "it is not the latest one" in fleet.log(victim).read_text() and ended.exitcode == 6
            )
        left: dict[tuple[str, str], set[str]] = {}
        for line in (folder / "witness").read_text().splitlines():
            name, step, digest, *_ = line.split()
            left.setdefault((name, step), set()).add(digest)
        assert all(len(digests) == 1 for digests in left.values()), f"noise added twice: {left}"
    assert refused >= 1

"""The ledger: what is on disk stays there, whatever moment the process dies at,
and only one process writes.
"""

from __future__ import annotations

import errno
import hashlib
import inspect
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import hearsay
from hearsay.deploy import ledger as module
from hearsay.deploy.agent import Agent
from hearsay.deploy.ledger import Ledger, LedgerError, LedgerUnavailable
from hearsay.deploy.mailbox import let_go

ABOUT = {"run": "wards", "agent": "alice", "configuration": "c" * 64, "noise": "lattice"}


def arrays(round: int) -> dict[str, np.ndarray]:
    return {
        "params": np.arange(5.0) + round,
        "key": np.array([round, 7], np.uint32),
        "step": np.array(round),
    }


def payload(round: int) -> bytes:
    return bytes([round % 256]) * (100 + round)


def commit(ledger: Ledger, *rounds: int) -> None:
    for round in rounds:
        ledger.commit(
            round,
            payload(round),
            0.5 * (round + 1),
            {"skipped": [], "heard": {"bob": round - 1}},
            arrays(round),
        )


def assert_stands_at(ledger: Ledger, round: int, *, done: bool = False) -> None:
    entry = ledger.last()
    assert entry is not None
    assert (entry.round, entry.done, entry.payload) == (round, done, payload(round))
    expected = arrays(round + 1 if done else round)
    assert entry.arrays.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(entry.arrays[name], value)
        assert entry.arrays[name].dtype == value.dtype
        assert entry.arrays[name].shape == value.shape


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "alice.ledger"


def test_an_empty_ledger(path):
    with Ledger(path, ABOUT) as ledger:
        assert ledger.last() is None
        assert ledger.message(0) is None
        assert ledger.history() == []
        assert ledger.heard() == ledger.notes() == {}
        assert ledger.secrets() == {}
        assert ledger.size() == 0


@pytest.mark.parametrize("large", [2**18, 16], ids=["in the database", "in files"])
def test_a_message_without_a_state_leaves_the_state_as_it_was(path, large, monkeypatch):
    """A relay: on disk like every message, with the state of the one before it."""
    monkeypatch.setattr(module, "_LARGE", large)
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, 0, 1)
        for round in (2, 3):
            ledger.commit(round, payload(round), 1.0, {"skipped": []}, None, settled=round - 1)
    for _ in range(2):
        with Ledger(path, ABOUT) as ledger:
            entry = ledger.last()
            assert entry is not None and (entry.round, entry.done) == (3, False)
            assert entry.payload == payload(3) and ledger.message(2) == payload(2)
            np.testing.assert_array_equal(entry.arrays["params"], arrays(1)["params"])
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, 4)
        assert_stands_at(ledger, 4)


@pytest.mark.parametrize("reopened", [False, True])
def test_what_was_committed_is_there(path, reopened):
    ledger = Ledger(path, ABOUT)
    commit(ledger, 0, 1, 2)
    if reopened:
        ledger.close()
        ledger = Ledger(path, ABOUT)
    assert_stands_at(ledger, 2)
    assert [ledger.message(r) for r in range(4)] == [payload(0), payload(1), payload(2), None]
    assert ledger.history() == [
        (r, 0.5 * (r + 1), {"skipped": [], "heard": {"bob": r - 1}}) for r in range(3)
    ]
    assert ledger.heard() == {"bob": 1}
    assert ledger.size() == sum(100 + r for r in range(3))
    ledger.close()


def test_finish_keeps_the_state_after_the_last_update(path):
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, 0, 1)
        ledger.finish(1, arrays(2))
    with Ledger(path, ABOUT) as ledger:
        assert_stands_at(ledger, 1, done=True)
        assert len(ledger.history()) == 2


def test_forgotten_messages_leave_their_budget(path):
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, *range(5))
        ledger.forget(3)
        ledger.forget(3)
        assert [ledger.message(r) is None for r in range(5)] == [True, True, True, False, False]
        assert [epsilon for _, epsilon, _ in ledger.history()] == [0.5, 1.0, 1.5, 2.0, 2.5]
        assert ledger.size() == 103 + 104
        assert_stands_at(ledger, 4)


def test_a_round_is_written_once(path):
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, 0, 1)
        with pytest.raises(sqlite3.IntegrityError):
            ledger.commit(1, b"other bytes", 9.0, {"heard": {}}, arrays(9))
        assert_stands_at(ledger, 1)
        assert ledger.history()[-1][1] == 1.0
        ledger.forget(2)
        with pytest.raises(sqlite3.IntegrityError):
            ledger.commit(1, payload(1), 1.0, {"heard": {}}, arrays(1))
        commit(ledger, 2)
        assert_stands_at(ledger, 2)


def test_a_commit_that_fails_half_way_leaves_nothing_behind(path, monkeypatch):
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, 0)

        def full(*args):
            raise OSError("no space left on device")

        monkeypatch.setattr(ledger, "_store", full)
        with pytest.raises(LedgerUnavailable, match="no space left.*message 1 was not sent"):
            commit(ledger, 1)
        monkeypatch.undo()
        assert_stands_at(ledger, 0)
        assert len(ledger.history()) == 1
        commit(ledger, 1)
        assert_stands_at(ledger, 1)


def test_a_full_disk_is_said_and_leaves_nothing_behind(path):
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, 0)
        pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
        ledger._db.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(LedgerUnavailable, match="full.*message 1 was not sent"):
            ledger.commit(1, bytes(10**5), 1.0, {"heard": {}}, arrays(1))
        ledger._db.execute("PRAGMA max_page_count = 1000000")
        assert_stands_at(ledger, 0)
        commit(ledger, 1)
        assert_stands_at(ledger, 1)


def test_a_state_that_cannot_be_written_down_stops_the_commit(path):
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, 0)
        with pytest.raises(TypeError):
            ledger.commit(1, payload(1), 1.0, {"heard": object()}, arrays(1))
        assert_stands_at(ledger, 0)
        commit(ledger, 1)


def test_only_the_owner_may_read(path):
    before = os.umask(0o022)
    try:
        with Ledger(path, ABOUT) as ledger:
            commit(ledger, 0)
            files = sorted(path.parent.iterdir())
            names = {
                "alice.ledger",
                "alice.ledger-shm",
                "alice.ledger-wal",
                "alice.ledger.lock",
                "alice.ledger.mark",
            }
            assert {file.name for file in files} == names
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_commits_are_synced_to_disk(path):
    with Ledger(path, ABOUT) as ledger:
        assert ledger._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert ledger._db.execute("PRAGMA synchronous").fetchone() == (2,)
    with Ledger(path, ABOUT) as ledger:
        assert ledger._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert ledger._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_commit_that_died_before_its_mark_is_synced_before_it_is_marked(
    path, tmp_path, monkeypatch
):
    """It may have died before its own sync: then only the system's memory has it,
    and with the power it would be gone, but not its mark.
    """
    ledger = Ledger(path, ABOUT)
    commit(ledger, 0)
    monkeypatch.setattr(ledger._mark, "write", lambda *_: None)
    commit(ledger, 1)
    shutil.copytree(path.parent, tmp_path / "killed")
    ledger.close()
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):
        plain = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda handle, plain=plain: (synced.append(handle_of(handle)), plain(handle))
        )
    with Ledger(tmp_path / "killed" / path.name, ABOUT) as again:
        assert_stands_at(again, 1)
    assert synced == [f"{path.name}-wal", "killed", f"{path.name}.mark"]


def handle_of(handle: int) -> str:
    return Path(os.readlink(f"/proc/self/fd/{handle}")).name


def test_the_instance_is_drawn_once_and_kept(path, tmp_path):
    with Ledger(path, ABOUT) as ledger:
        instance = ledger.instance
    with Ledger(path, ABOUT) as ledger:
        assert ledger.instance == instance
    assert len(instance) == 32
    with Ledger(tmp_path / "other.ledger", ABOUT) as ledger:
        assert ledger.instance != instance


def test_secrets_of_noise_that_later_rounds_take_back(path):
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, 0)
        for round in (1, 2):
            ledger.commit(
                round, payload(round), 1.0, {"heard": {}}, arrays(round), bytes([round]) * 32
            )
        ledger.forget(2)
    with Ledger(path, ABOUT) as ledger:
        assert ledger.secrets() == {1: b"\1" * 32, 2: b"\2" * 32}, (
            "secrets are needed for longer than messages"
        )


def test_what_is_pinned_must_not_change(path):
    with Ledger(path, ABOUT) as ledger:
        ledger.pin("records", b"secret records", "put them back")
        ledger.pin("records", b"secret records", "put them back")
        ledger.pin("plan", b"other plan", "another version")
        ledger.pin("plan", b"plan", "another version")  # nothing has been sent: it may still change
        commit(ledger, 0)
    with Ledger(path, ABOUT) as ledger:
        ledger.pin("records", b"secret records", "put them back")
        with pytest.raises(
            LedgerError, match=r"the records changed since .*alice.ledger was begun: put them back"
        ):
            ledger.pin("records", b"other records", "put them back")
        ledger.pin("plan", b"plan", "another version")


def test_a_pinned_fingerprint_confirms_no_guess(path, tmp_path):
    """It is keyed: two ledgers have different ones of the same records,
    and neither is a plain hash.
    """
    found = []
    for file in (path, tmp_path / "other.ledger"):
        with Ledger(file, ABOUT) as ledger:
            ledger.pin("records", b"records", "")
            found.append(
                ledger._db.execute("SELECT value FROM about WHERE key = 'records'").fetchone()[0]
            )
    assert len({*found, hashlib.sha256(b"records").hexdigest()}) == 3


def test_the_last_message_is_never_forgotten(path):
    with Ledger(path, ABOUT) as ledger:
        ledger.forget(5)
        commit(ledger, 0, 1, 2)
        ledger.forget(100)
        assert [ledger.message(r) is None for r in range(3)] == [True, True, False]
        assert_stands_at(ledger, 2)


def test_a_ledger_without_its_last_message_is_refused(path):
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, 0, 1)
        ledger._db.execute("UPDATE rounds SET payload = NULL WHERE round = 1")
        with pytest.raises(LedgerError, match="lacks its last message"):
            ledger.last()


@pytest.mark.parametrize("key", ABOUT)
def test_another_run_agent_or_configuration_is_refused(path, key):
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, 0)
    with pytest.raises(
        LedgerError,
        match=(
            rf"alice.ledger belongs to another {key} .*and this is other.*: put net.toml and the"
            r" options back as they were, and the run goes on; or begin one with a new name"
        ),
    ):
        Ledger(path, {**ABOUT, key: "other"})
    with Ledger(path, ABOUT) as ledger:  # the lock was released, and nothing was changed
        assert_stands_at(ledger, 0)


def test_another_format_is_refused(path):
    Ledger(path, ABOUT).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE about SET value = '1' WHERE key = 'format'")
    db.close()
    with pytest.raises(
        LedgerError,
        match=(
            "written in format 1: this version reads 2. Finish the run with the version that"
            " began it"
        ),
    ):
        Ledger(path, ABOUT)


def test_a_disk_that_refuses_a_folder_or_a_lock_may_be_tried_again(path, monkeypatch):
    """Neither is a bare error of the system, nor a process that there is not."""
    for call, error in (("os.mkdir", errno.EROFS), ("fcntl.flock", errno.ENOLCK)):

        def refuse(*_, error=error, **__):
            raise OSError(error, os.strerror(error))

        with monkeypatch.context() as patch:
            patch.setattr(call, refuse)
            with pytest.raises(LedgerUnavailable, match="to the disk, and start this agent again"):
                Ledger(path.parent / "new" / path.name, ABOUT)
    Ledger(path.parent / "new" / path.name, ABOUT).close()


def test_two_ledgers_of_one_process(path):
    with Ledger(path, ABOUT):
        with pytest.raises(
            LedgerError, match=r"alice.ledger is in use: this agent is already running"
        ):
            Ledger(path, ABOUT)
        with Ledger(path.with_name("bob.ledger"), ABOUT):
            pass
    Ledger(path, ABOUT).close()


def test_two_processes_whose_lock_file_was_deleted_write_over_nothing(path, monkeypatch):
    # Messages and states in files, which no transaction takes back.
    monkeypatch.setattr(module, "_LARGE", 8)
    with Ledger(path, ABOUT) as one:
        commit(one, 0)
        path.with_name(path.name + ".lock").unlink()
        with Ledger(path, ABOUT) as two:
            commit(one, 1)
            with pytest.raises(
                LedgerError, match="has message 1, which this process has not written"
            ):
                two.commit(1, b"another message", 1.0, {}, arrays(7))
            with pytest.raises(LedgerError, match="its lock file is gone"):
                two.finish(0, arrays(7))
        assert one.message(1) == payload(1)
    with Ledger(path, ABOUT) as again:
        assert_stands_at(again, 1)


@pytest.mark.parametrize(
    "answer", [b'{"round": 1e999}', b'{"round": null}', b'{"round": "far"}', b"[]", b"", None]
)
def test_what_a_neighbour_says_of_its_round_ends_no_agent(answer):
    ledger = SimpleNamespace(
        size=lambda: 2**31, forget=lambda before: pytest.fail("nobody said that it has them")
    )
    agent = SimpleNamespace(
        ledger=ledger,
        heard_by=["mallory"],
        transport=SimpleNamespace(ask=lambda *_, **__: answer),
        _round=5,
    )
    Agent._tidy(agent)  # type: ignore[arg-type]


def test_closing_twice_is_no_mistake(path):
    ledger = Ledger(path, ABOUT)
    ledger.close()
    ledger.close()


# Without `import hearsay`, which brings JAX along: a process is killed more than twenty times here.
WRITER = """
import os, signal, sqlite3, sys, time, types
from pathlib import Path
from types import SimpleNamespace

import numpy as np

connect, left = sqlite3.connect, int(sys.argv[3])

def die_at_last(statement):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def traced(*args, **options):
    db = connect(*args, **options)
    db.set_trace_callback(die_at_last)
    return db

sqlite3.connect = traced

package = types.ModuleType("hearsay")
package.__path__ = [{package!r}]
sys.modules["hearsay"] = package
from hearsay.deploy.ledger import Ledger

ABOUT = {about!r}
{functions}
ledger = Ledger(Path(sys.argv[1]), ABOUT)
entry = ledger.last()
print(-1 if entry is None else entry.round, flush=True)
if sys.argv[2] == "hold":
    time.sleep(60)
for round in range(0 if entry is None else entry.round + 1, 10**9):
    commit(ledger, round)
    print(round, flush=True)
"""


def writer(path: Path, what: str, die_at: int = 0) -> subprocess.Popen:
    """A process of its own that opens the ledger, says where it stands, and commits one round after
    the other, until it is about to execute the SQL statement number `die_at`.
    """
    functions = "\n".join(inspect.getsource(function) for function in (arrays, payload, commit))
    script = WRITER.format(
        package=str(Path(hearsay.__file__).parent), about=ABOUT, functions=functions
    )
    command = [sys.executable, "-c", script, str(path), what, str(die_at)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_second_process_is_refused_while_the_first_lives(path):
    first = writer(path, "hold")
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "-1\n"
        with pytest.raises(LedgerError, match="is in use: this agent is already running"):
            Ledger(path, ABOUT)
        second = writer(path, "hold")
        _, said = second.communicate(timeout=30)
        assert second.returncode == 1
        assert f"is in use: this agent is already running (process {first.pid}). Let" in said
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    with Ledger(path, ABOUT) as ledger:  # the lock died with its process
        commit(ledger, 0)


def assert_survived(path: Path, said: str, reached: int) -> int:
    """A round that was said to be committed is there after the kill, whole,
    and the state is that of the last round.
    """
    whole = [int(line) for line in said.splitlines(keepends=True) if line.endswith("\n")]
    printed = max([reached, *whole])
    with Ledger(path, ABOUT) as ledger:
        entry = ledger.last()
        found = -1 if entry is None else entry.round
        assert printed <= found <= printed + 1, "committed and lost, or never committed"
        if entry is not None:
            assert_stands_at(ledger, found)
            assert ledger.heard() == {"bob": found - 1}
        assert [round for round, *_ in ledger.history()] == list(range(found + 1))
        assert all(ledger.message(round) == payload(round) for round in range(found + 1))
        assert ledger._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        commit(ledger, found + 1)
    return found + 1


def test_killed_at_any_moment(path):
    rng, reached = random.Random(5), -1
    for kill in range(20):
        process = writer(path, "commit")
        try:
            assert process.stdout is not None
            if kill % 5 != 4:  # most kills fall among commits, some into the start
                assert int(process.stdout.readline()) == reached, "it goes on where the ledger was"
            time.sleep(rng.uniform(0.0, 0.08))
        finally:
            process.send_signal(signal.SIGKILL)
            assert process.stdout is not None
            # And not communicate(), which does not know what readline() has read ahead.
            said = process.stdout.read()
            process.communicate()
        reached = assert_survived(path, said, reached)
    assert reached > 60, "the kills fell among commits"


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [True, False])
def test_killed_at_every_statement(tmp_path, fresh):
    """From making the ledger to the second commit."""
    path, reached = tmp_path / "alice.ledger", -1
    for statement in range(1, 32 if fresh else 22):
        if fresh:
            path, reached = tmp_path / f"{statement}.ledger", -1
        process = writer(path, "commit", statement)
        said, _ = process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL
        reached = assert_survived(path, said, reached)
    assert reached >= 1


def test_killed_while_the_ledger_is_made(tmp_path):
    """Whatever is on disk then, the next start makes a ledger of it."""
    for state, content in enumerate((None, b"")):
        path = tmp_path / f"{state}.ledger"
        if content is not None:
            path.write_bytes(content)
        with Ledger(path, ABOUT) as ledger:
            commit(ledger, 0)
    path = tmp_path / "no-tables.ledger"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.close()
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, 0)
        assert_stands_at(ledger, 0)


@pytest.mark.parametrize(
    "content", [b"not a database at all" * 50, b"SQLite format 3\0" + bytes(4096), b"\0" * 5000]
)
def test_a_file_that_is_no_ledger(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    for _ in range(2):  # the lock is released, and the file is left as it is
        with pytest.raises(
            LedgerError, match=r"alice.ledger is damaged or is no ledger \(.*\)\. Do not repair it"
        ):
            Ledger(path, ABOUT)
    assert path.read_bytes() == content


def test_a_database_of_something_else(path):
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE patients (name TEXT)")
    db.close()
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger(path, ABOUT)


def test_a_damaged_file_is_never_read_as_if_it_were_whole(path):
    """Overwritten pages: an error that says so, wherever it is noticed first."""
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, *range(40))
    content, noticed = path.read_bytes(), 0
    pages = len(content) // 4096
    assert pages >= 4
    for page in range(pages):
        damaged = bytearray(content)
        damaged[page * 4096 + (100 if page == 0 else 0) : (page + 1) * 4096] = b"\xa5" * (
            4096 - (100 if page == 0 else 0)
        )
        path.write_bytes(bytes(damaged))
        try:
            with Ledger(path, ABOUT) as ledger:
                assert_stands_at(ledger, 39)
                assert [round for round, *_ in ledger.history()] == list(range(40))
                assert all(ledger.message(round) == payload(round) for round in range(40))
                ledger.heard()
                ledger.size()
        except LedgerError as error:
            assert "damaged" in str(error)
            noticed += 1
    assert noticed >= pages - 1


@pytest.mark.parametrize(
    ("table", "column", "said"),
    [
        ("state", "arrays", "the state in .* is damaged"),
        ("rounds", "payload", "message 2 in .* is damaged"),
    ],
)
def test_a_flipped_bit_is_noticed(path, table, column, said):
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, 0, 1, 2)
    db = sqlite3.connect(path)
    (blob,) = db.execute(f"SELECT {column} FROM {table} ORDER BY round DESC LIMIT 1").fetchone()
    for place in (0, len(blob) // 2, len(blob) - 1):
        damaged = bytearray(blob)
        damaged[place] ^= 1
        db.execute(f"UPDATE {table} SET {column} = ? WHERE round = 2", (bytes(damaged),))
        db.commit()
        with (
            Ledger(path, ABOUT) as ledger,
            pytest.raises(LedgerError, match=rf"{said} \(its checksum does not match\)"),
        ):
            ledger.last()
    db.close()


def test_messages_are_read_from_other_threads_while_rounds_are_written(path):
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, 0)
        wrong, stop = list[object](), threading.Event()

        def ask() -> None:
            while not stop.is_set():
                for round, *_ in ledger.history():
                    if ledger.message(round) != payload(round):
                        wrong.append(round)
                entry = ledger.last()
                if entry is None or entry.payload != payload(entry.round):
                    wrong.append(entry)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        commit(ledger, *range(1, 60))
        stop.set()
        for thread in threads:
            thread.join(10)
        assert wrong == []
        assert_stands_at(ledger, 59)


def test_large_things_lie_in_files_that_are_synced_before_they_are_named(path):
    """A million numbers: message and state in files of their own, the state in two that take turns,
    all of it back after reopening.
    """
    big = {"x": np.arange(200_000.0)}
    with Ledger(path, ABOUT) as ledger:
        for round in range(4):
            ledger.commit(
                round, bytes([round]) * 400_000, 1.0, {"heard": {}}, {"x": big["x"] + round}
            )
        folder = path.with_name("alice.ledger.large")
        assert folder.stat().st_mode & 0o777 == 0o700
        assert sorted(file.name for file in folder.iterdir()) == [
            *(f"message-{r}" for r in range(4)),
            "state-0",
            "state-1",
        ]
        assert all(file.stat().st_mode & 0o777 == 0o600 for file in folder.iterdir())
        assert path.stat().st_size < 100_000
        assert ledger.size() == 1_600_000
    with Ledger(path, ABOUT) as ledger:
        entry = ledger.last()
        assert entry is not None and entry.payload == b"\x03" * 400_000
        np.testing.assert_array_equal(entry.arrays["x"], big["x"] + 3)
        ledger.forget(10)
        assert [ledger.message(round) is None for round in range(4)] == [True, True, True, False]
        assert ledger.size() == 400_000
        ledger.finish(3, {"x": big["x"] + 9})
    with Ledger(path, ABOUT) as ledger:
        entry = ledger.last()
        assert entry is not None and entry.done
        np.testing.assert_array_equal(entry.arrays["x"], big["x"] + 9)


@pytest.mark.parametrize("name", ["message-1", "state-1"])
def test_a_damaged_or_lost_file_is_noticed(path, name):
    with Ledger(path, ABOUT) as ledger:
        for round in range(2):
            ledger.commit(
                round, bytes([round]) * 400_000, 1.0, {"heard": {}}, {"x": np.arange(50_000.0)}
            )
    file = path.with_name("alice.ledger.large") / name
    content = bytearray(file.read_bytes())
    content[70_000] ^= 4
    file.write_bytes(bytes(content))
    with Ledger(path, ABOUT) as ledger, pytest.raises(LedgerError, match="damaged"):
        ledger.last()
    file.unlink()
    with pytest.raises(LedgerError, match="damaged"), Ledger(path, ABOUT) as ledger:
        ledger.last()


def test_a_crash_between_the_file_and_its_row_leaves_the_old_state(path, monkeypatch):
    with Ledger(path, ABOUT) as ledger:
        ledger.commit(0, b"a" * 400_000, 1.0, {"heard": {}}, {"x": np.zeros(50_000)})
        put, calls = ledger._put, []

        def crash(name, parts):
            found = put(name, parts)
            calls.append(name)
            if name.startswith("state"):
                raise KeyboardInterrupt
            return found

        monkeypatch.setattr(ledger, "_put", crash)
        with pytest.raises(KeyboardInterrupt):
            ledger.commit(1, b"b" * 400_000, 1.0, {"heard": {}}, {"x": np.ones(50_000)})
        assert sorted(calls) == ["message-1", "state-1"]
    for _ in range(2):  # and again: the file that nobody names is written over
        with Ledger(path, ABOUT) as ledger:
            entry = ledger.last()
            assert entry is not None and entry.round == 0
            np.testing.assert_array_equal(entry.arrays["x"], np.zeros(50_000))
    with Ledger(path, ABOUT) as ledger:
        ledger.commit(1, b"c" * 400_000, 1.0, {"heard": {}}, {"x": np.ones(50_000)})
        assert ledger.message(1) == b"c" * 400_000


def test_nothing_sent_yet_the_run_may_become_another(path):
    with Ledger(path, ABOUT) as ledger:
        instance = ledger.instance
        ledger.pin("records", b"one", "hint")
    with Ledger(path, {**ABOUT, "configuration": "other"}) as ledger:
        assert ledger.instance == instance, "neighbours know it already"
        ledger.pin("records", b"two", "hint")


def test_neighbours_are_remembered_at_once_and_for_good(path):
    with Ledger(path, ABOUT) as ledger:
        assert ledger.met() == {}
        assert ledger.meet("bob", "b1") == "b1"
        assert ledger.meet("bob", "b2") == "b1"
    with Ledger(path, ABOUT) as ledger:
        assert ledger.met() == {"bob": "b1"}


@pytest.mark.parametrize("large", [2**18, 50])
def test_messages_are_bounded_and_the_oldest_go_first(path, monkeypatch, large):
    """Whoever asks for one of them is told; budgets stay, and disk space comes back."""
    monkeypatch.setattr(module, "_LARGE", large)
    with Ledger(path, ABOUT) as ledger:
        commit(ledger, *range(10))
        assert ledger.bound(ledger.size()) is None and ledger.oldest() == 0
        assert ledger.bound(ledger.size() - 1) == 2
        for round in range(10, 40):
            commit(ledger, round)
            left = ledger.bound(1000)
            assert ledger.size() <= 1000 and (left is None or left == ledger.oldest())
        assert 500 < ledger.size() <= 1000
        agent = SimpleNamespace(_last=(39, payload(39)), ledger=ledger, _committed=40)
        assert Agent._outbox(agent, 3) == let_go(ledger.oldest()) != let_go(0)
        assert [Agent._outbox(agent, step) for step in (38, 39, 40)] == [
            payload(38),
            payload(39),
            None,
        ]
        assert ledger.bound(1) == 39, "never the last"
        assert len(ledger.history()) == 40
    with Ledger(path, ABOUT) as ledger:
        assert_stands_at(ledger, 39)
        assert ledger.size() == len(payload(39))
    if large == 50:
        kept = sorted(file.name for file in path.with_name("alice.ledger.large").iterdir())
        assert kept == ["message-39", "state-0", "state-1"]

"""Checkpoints: whole or refused, and the previous one is kept."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest

from hearsay import _files
from hearsay._files import write_atomically
from hearsay.simulation import checkpoint
from hearsay.simulation.checkpoint import NAME, PREVIOUS, DamagedCheckpoint, load, save


def arrays(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "models": rng.normal(size=(2, 3)),
        "single": rng.normal(size=4).astype(np.float32),
        "step": np.array(7 + seed),
        "fingerprint": np.array(f"abc{seed}"),
        "empty": np.zeros((0, 3)),
    }


def assert_holds(folder, seed: int) -> None:
    stored, expected = load(folder), arrays(seed)
    assert stored.keys() == expected.keys()
    for name, value in expected.items():
        assert stored[name].dtype == value.dtype
        np.testing.assert_array_equal(stored[name], value)


def test_round_trip_is_exact_and_leaves_nothing_else(tmp_path):
    save(tmp_path, arrays(0))
    assert_holds(tmp_path, 0)
    assert os.listdir(tmp_path) == [NAME]


def test_the_previous_checkpoint_is_kept(tmp_path):
    for seed in range(3):
        save(tmp_path, arrays(seed))
    assert sorted(os.listdir(tmp_path)) == sorted([NAME, PREVIOUS])
    assert_holds(tmp_path, 2)
    os.replace(tmp_path / PREVIOUS, tmp_path / NAME)
    assert_holds(tmp_path, 1)


@pytest.mark.parametrize("keep", [0, 1, 31, 32, 63, 64, 200, -1, -32, -33])
def test_a_truncated_file_is_refused(tmp_path, keep):
    save(tmp_path, arrays(0))
    content = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(content[:keep])
    with pytest.raises(
        DamagedCheckpoint, match=r"private-checkpoint.npz is damaged \(its checksum does not"
    ):
        load(tmp_path)


def test_any_flipped_bit_is_refused(tmp_path):
    save(tmp_path, arrays(0))
    content = (tmp_path / NAME).read_bytes()
    for place in [*range(0, len(content), 97), len(content) - 1]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        (tmp_path / NAME).write_bytes(bytes(damaged))
        with pytest.raises(DamagedCheckpoint, match="refusing to resume from it$"):
            load(tmp_path)


def test_the_message_names_the_previous_one(tmp_path):
    for seed in range(2):
        save(tmp_path, arrays(seed))
    (tmp_path / NAME).write_bytes(b"nonsense" * 20)
    hint = f"the one before it is kept as {PREVIOUS}: rename it to {NAME} to resume from there"
    with pytest.raises(DamagedCheckpoint, match=hint):
        load(tmp_path)
    os.replace(tmp_path / PREVIOUS, tmp_path / NAME)
    assert_holds(tmp_path, 0)


def test_no_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint in .*: nothing to resume"):
        load(tmp_path)


@pytest.mark.parametrize("moment", ["fsync", "last rename"])
def test_a_crash_while_saving_leaves_the_checkpoint_before(tmp_path, monkeypatch, moment):
    save(tmp_path, arrays(0))
    original = os.replace

    def crash(*args):
        raise RuntimeError("power cut")

    def replace(source, target):
        if str(source).endswith(".partial"):
            crash()
        original(source, target)

    if moment == "fsync":
        monkeypatch.setattr(_files.os, "fsync", crash)
    else:
        monkeypatch.setattr(_files.os, "replace", replace)
    with pytest.raises(RuntimeError, match="power cut"):
        save(tmp_path, arrays(1))
    monkeypatch.undo()
    assert (tmp_path / NAME).exists() == (moment == "fsync"), (
        "the other crash fell between the two renames"
    )
    assert_holds(tmp_path, 0)
    save(tmp_path, arrays(2))
    assert_holds(tmp_path, 2)


def test_a_damaged_previous_checkpoint_does_not_recommend_itself(tmp_path):
    save(tmp_path, arrays(0))
    os.replace(tmp_path / NAME, tmp_path / PREVIOUS)
    (tmp_path / PREVIOUS).write_bytes(b"nonsense" * 20)
    with pytest.raises(DamagedCheckpoint) as caught:
        load(tmp_path)
    assert "rename" not in str(caught.value)


def full(*_) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as the system says it: without a name


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_whole_and_is_said_with_its_path(
    tmp_path, monkeypatch, moment
):
    path = tmp_path / "file.txt"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    monkeypatch.setattr(_files.os, moment, full)
    with pytest.raises(
        OSError, match=f"cannot write it: No space left on device: '{path}'"
    ) as caught:
        write_atomically(path, b"newer")
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == ["file.txt"]
    assert path.read_bytes() == b"new"


def test_a_checkpoint_that_finds_no_room_leaves_the_latest_one(tmp_path, monkeypatch):
    for seed in range(2):
        save(tmp_path, arrays(seed))
    monkeypatch.setattr(_files.os, "fsync", full)
    with pytest.raises(OSError, match=NAME):
        save(tmp_path, arrays(2))
    assert sorted(os.listdir(tmp_path)) == sorted([NAME, PREVIOUS])
    assert_holds(tmp_path, 1)


def test_an_interrupt_while_writing_leaves_nothing_beside(tmp_path, monkeypatch):
    monkeypatch.setattr(_files.os, "fsync", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file.txt", b"some")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "none" / "file.txt")):
        write_atomically(tmp_path / "none" / "file.txt", b"some")


def test_a_folder_of_before_is_gone_on_with_under_the_names_of_today(tmp_path):
    checkpoint.write(tmp_path / "checkpoint.npz", arrays(0))
    for name in ("checkpoint.previous.npz", "metrics.csv", "models.npz", "report.html"):
        (tmp_path / name).write_text("of before")
    (tmp_path / "certificate.json").write_text("{}")
    np.testing.assert_array_equal(load(tmp_path)["models"], arrays(0)["models"])
    assert {path.name for path in tmp_path.iterdir()} == {
        "certificate.json", "private-checkpoint.npz", "private-checkpoint.previous.npz",
        "private-metrics.csv", "private-models.npz", "private-report.html",
    }  # fmt: skip


def test_files_of_somebody_else_keep_their_names(tmp_path):
    (tmp_path / "report.html").write_text("not a run's")
    assert not checkpoint.exists(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]

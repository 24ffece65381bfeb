"""One folder, one writer: a second run is refused at once, and a lock dies with its process."""

from __future__ import annotations

import errno
import importlib.util
import os
import signal
import subprocess
import sys
import threading

import pytest

from hearsay import _files
from hearsay._files import NAME, InUse, held, write_atomically

# Only what the lock needs: importing the whole package would take seconds.
HOLDER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("files", sys.argv[1])
_files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(_files)
with _files.held(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds tmp_path / "run"; it releases it when its input ends."""
    command = [sys.executable, "-S", "-c", HOLDER, _files.__file__, str(tmp_path / "run")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_at_once_and_told_who_holds_it(holder, tmp_path):
    folder = tmp_path / "run"
    with (
        pytest.raises(
            InUse, match=f"got {folder}, into which process {holder.pid} is writing"
        ) as caught,
        held(folder),
    ):
        pass
    assert isinstance(caught.value, ValueError), "the command line ends with code 2"
    holder.stdin.close()
    assert holder.wait() == 0
    assert not folder.exists(), "it was made for the lock and nothing was written"
    with held(folder):
        assert (folder / NAME).exists()


def test_a_lock_dies_with_its_process(holder, tmp_path):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "run" / NAME).exists(), "a file that is left behind"
    with held(tmp_path / "run"):
        pass
    assert not (tmp_path / "run" / NAME).exists()


def test_a_thread_may_hold_a_folder_twice_and_another_thread_may_not(tmp_path):
    refused = []

    def other():
        try:
            with held(tmp_path):
                pass
        except InUse as error:
            refused.append(str(error))

    with held(tmp_path):
        with held(tmp_path / "." / "x" / ".."):
            pass
        assert (tmp_path / NAME).exists(), "still held"
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "another thread is writing" in refused[0]
    with held(tmp_path):
        pass


def test_folders_that_were_made_stay_if_something_was_written(tmp_path):
    with held(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "file").write_text("x")
    assert os.listdir(tmp_path / "a" / "b") == ["file"]
    with pytest.raises(RuntimeError), held(tmp_path / "c" / "d"):
        raise RuntimeError
    assert not (tmp_path / "c").exists()


def test_a_lock_file_that_was_removed_is_not_taken_for_the_lock(tmp_path, monkeypatch):
    """Whoever held it tidies up between our opening of the file and our locking of it."""
    original, calls = _files.fcntl.flock, []

    def flock(handle, how):
        calls.append(1)
        if len(calls) == 1:
            os.unlink(tmp_path / NAME)
        return original(handle, how)

    monkeypatch.setattr(_files.fcntl, "flock", flock)
    with held(tmp_path):
        assert len(calls) == 2 and (tmp_path / NAME).exists()


def test_a_system_without_locks_holds_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "fcntl", None)
    with held(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    monkeypatch.undo()
    monkeypatch.setattr(
        _files.fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOTSUP, "no locks"))
    )
    with held(tmp_path):
        pass


def test_the_module_can_be_imported_where_there_is_no_fcntl(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    spec = importlib.util.spec_from_file_location("elsewhere", _files.__file__)
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    assert copy.fcntl is None


def test_nothing_to_hold():
    with held(None):
        pass


def test_what_is_private_is_its_owners_alone(tmp_path):
    write_atomically(tmp_path / "private-seed.txt", b"7")
    write_atomically(tmp_path / "alice.private-model.npy", b"7")
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600

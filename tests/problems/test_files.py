"""Finding raw files: the order of places, the checksum of every source,
and what a failed search says.
"""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hearsay.problems.data import files

CONTENT = b"spores,gills,caps\n" * 5000
GOOD = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        if self.path == "/absent":
            self.send_error(404)
            return
        body = CONTENT if self.path == "/good" else CONTENT[:-1] + b"X"
        if self.path == "/truncated":
            body = CONTENT[:1000]
        if self.path == "/endless":
            body = CONTENT * 200
        self.send_response(200)
        self.send_header("Content-Length", str(max(len(CONTENT), len(body))))
        self.end_headers()
        with suppress(ConnectionError):  # the client may hang up once it has seen enough
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.requests = []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def places(tmp_path, monkeypatch):
    """An empty data_dir, HEARSAY_DATA and cache, and one registered file that has no address."""
    folders = {name: tmp_path / name for name in ("data_dir", "shared", "cache")}
    for folder in folders.values():
        folder.mkdir()
    monkeypatch.setenv("HEARSAY_DATA", str(folders["shared"]))
    monkeypatch.setenv("HEARSAY_CACHE", str(folders["cache"]))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(files, "FILES", {"toy": files.DataFile("toys/toy.csv", len(CONTENT), GOOD)})
    return folders


def put(folder, content=CONTENT):
    path = folder / "toys" / "toy.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def at(server, page):
    url = f"http://127.0.0.1:{server.server_port}/{page}"
    return {"toy": files.DataFile("toys/toy.csv", len(CONTENT), GOOD, url)}


def left_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_places_are_looked_at_in_order(places):
    expected = [put(places[name]) for name in ("data_dir", "shared", "cache")]
    for path in expected:
        assert files.locate("toy", places["data_dir"]) == path
        path.unlink()
    with pytest.raises(FileNotFoundError):
        files.locate("toy", places["data_dir"])


def test_data_dir_may_be_text(places):
    path = put(places["data_dir"])
    assert files.locate("toy", str(places["data_dir"])) == path


@pytest.mark.parametrize("place", ["data_dir", "shared", "cache"])
def test_every_source_is_checked(places, place):
    wrong = CONTENT[:-1] + b"X"
    path = put(places[place], wrong)
    with pytest.raises(files.ChecksumError) as caught:
        files.locate("toy", places["data_dir"])
    message = str(caught.value)
    assert str(path) in message
    assert GOOD in message and hashlib.sha256(wrong).hexdigest() in message
    assert path.exists()


def test_a_file_is_read_once_per_process_unless_it_changes(places, monkeypatch):
    path, reads = put(places["data_dir"]), []
    original = files.hashlib.file_digest
    monkeypatch.setattr(
        files.hashlib, "file_digest", lambda *args: reads.append(args) or original(*args)
    )
    for _ in range(3):
        files.locate("toy", places["data_dir"])
    assert len(reads) == 1
    path.write_bytes(CONTENT + b"more")
    with pytest.raises(files.ChecksumError):
        files.locate("toy", places["data_dir"])
    assert len(reads) == 2


def test_download_lands_in_the_cache_and_is_used_again(places, server, monkeypatch):
    monkeypatch.setattr(files, "FILES", at(server, "good"))
    seen = []
    path = files.locate(
        "toy", places["data_dir"], progress=lambda done, total: seen.append((done, total))
    )
    assert path == places["cache"] / "toys" / "toy.csv"
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert files.locate("toy") == path
    assert server.requests == ["/good"]
    assert left_in(places["cache"]) == [path]


def test_a_full_disk_names_the_file_and_not_the_address(places, server, monkeypatch):
    monkeypatch.setattr(files, "FILES", at(server, "good"))
    full = str(places["cache"] / "part")
    monkeypatch.setattr(
        files.tempfile, "mkstemp", lambda **_: (os.open("/dev/full", os.O_WRONLY), full)
    )
    target = places["cache"] / "toys" / "toy.csv"
    with pytest.raises(OSError, match=f"cannot write it: No space left on device: '{target}'"):
        files.locate("toy")
    assert left_in(places["cache"]) == []


@pytest.mark.parametrize("page", ["corrupted", "truncated", "endless"])
def test_a_bad_download_is_refused_and_leaves_nothing(places, server, monkeypatch, page):
    monkeypatch.setattr(files, "FILES", at(server, page))
    with pytest.raises(files.ChecksumError) as caught:
        files.locate("toy")
    message = str(caught.value)
    assert "toys/toy.csv" in message and f"/{page}" in message and GOOD in message
    assert left_in(places["cache"]) == []
    if page == "corrupted":
        assert hashlib.sha256(CONTENT[:-1] + b"X").hexdigest() in message
    if page == "truncated":
        assert "(1000 bytes)" in message


def test_an_endless_download_stops_soon_after_the_expected_size(places, server, monkeypatch):
    monkeypatch.setattr(files, "FILES", at(server, "endless"))
    monkeypatch.setattr(files, "_CHUNK", 4096)
    seen = []
    with pytest.raises(files.ChecksumError):
        files.locate("toy", progress=lambda done, total: seen.append(done))
    assert len(CONTENT) < seen[-1] <= len(CONTENT) + 4096


def test_failed_download_lists_every_place_and_the_way_out(places, server, monkeypatch):
    monkeypatch.setattr(files, "FILES", at(server, "absent"))
    with pytest.raises(FileNotFoundError) as caught:
        files.locate("toy", places["data_dir"])
    message = str(caught.value)
    for folder in places.values():
        assert str(folder / "toys" / "toy.csv") in message
    assert "/absent failed (HTTPError" in message and "404" in message
    assert "data_dir=FOLDER" in message and "HEARSAY_DATA=FOLDER" in message and GOOD in message
    assert left_in(places["cache"]) == []


def test_no_network_is_a_file_not_found(places, server, monkeypatch):
    monkeypatch.setattr(files, "FILES", at(server, "good"))

    def refuse(*_, **__):
        raise files.urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(files.urllib.request, "urlopen", refuse)
    monkeypatch.delenv("HEARSAY_DATA")
    with pytest.raises(FileNotFoundError, match="Name or service not known") as caught:
        files.locate("toy")
    assert "data_dir: not given" in str(caught.value) and "HEARSAY_DATA: not given" in str(
        caught.value
    )


def test_a_cache_that_cannot_be_written_is_reported(places, server, monkeypatch):
    monkeypatch.setattr(files, "FILES", at(server, "good"))
    (places["cache"] / "toys").write_text("in the way")
    with pytest.raises(FileNotFoundError, match="download: .*FileExistsError"):
        files.locate("toy")


def test_file_without_an_address_says_so(places):
    with pytest.raises(FileNotFoundError, match="no public address is known") as caught:
        files.locate("toy")
    assert "FOLDER/toys/toy.csv" in str(caught.value)


def test_unknown_key_is_suggested():
    with pytest.raises(ValueError, match="got 'mushroom'; did you mean 'mushrooms'"):
        files.locate("mushroom")


def test_status_reports_good_bad_and_missing(places):
    (missing,) = files.status(places["data_dir"])
    assert (missing.key, missing.found, missing.source, missing.checksum_ok) == (
        "toy",
        None,
        None,
        None,
    )
    cached = put(places["cache"])
    (good,) = files.status(places["data_dir"])
    assert (good.found, good.source, good.checksum_ok) == (cached, "cache", True)
    bad = put(places["data_dir"], b"not it")
    (row,) = files.status(places["data_dir"])
    assert (row.found, row.source, row.checksum_ok) == (bad, "data_dir", False)


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("HEARSAY_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.cache_dir() == tmp_path / "hearsay" / "data"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for ignored in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert files.cache_dir() == tmp_path / "home" / ".cache" / "hearsay" / "data"
    monkeypatch.setenv("HEARSAY_CACHE", str(tmp_path / "own"))
    assert files.cache_dir() == tmp_path / "own"


def test_registry_is_well_formed():
    assert {"mushrooms", "cifar10"} < set(files.FILES) and len(files.FILES) == 6
    for file in files.FILES.values():
        assert len(file.sha256) == 64 and set(file.sha256) <= set("0123456789abcdef")
        assert file.size > 0 and not file.path.startswith("/")
        assert file.url is None or (
            file.url.startswith("https://") and file.url.endswith(file.path.split("/")[1])
        )
    assert [key for key, file in files.FILES.items() if file.url is None] == ["cifar10"]

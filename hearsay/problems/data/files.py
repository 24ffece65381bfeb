"""Where raw data files are found, and how we know they are the right ones.

A file is looked for in the caller's data folder, then in the folder named by HEARSAY_DATA, then in
the cache (HEARSAY_CACHE, or hearsay/data in the XDG user cache folder), and is last downloaded into
the cache. Whatever the source, its sha256 must equal the one written here, so the order decides
only where a file comes from and never what a result is computed on.
"""

from __future__ import annotations

import difflib
import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_CHUNK = 1 << 20
_TIMEOUT_SECONDS = 30.0

Progress = Callable[[int, int], None]
"""Called as progress(bytes_so_far, bytes_in_all) while a file is downloaded."""


class ChecksumError(ValueError):
    """A file is there but is not the published one."""


@dataclass(frozen=True)
class DataFile:
    """One published file: its place in a data folder and what identifies it."""

    path: str
    size: int
    sha256: str
    url: str | None = None


@dataclass(frozen=True)
class FileStatus:
    """What `status` knows of one file; checksum_ok is None when the file was not found."""

    key: str
    file: DataFile
    found: Path | None
    source: str | None
    checksum_ok: bool | None


_MNIST_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_UCI_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/"


def _mnist(name: str, size: int, sha256: str) -> DataFile:
    return DataFile(f"mnist/{name}", size, sha256, _MNIST_URL + name)


FILES: dict[str, DataFile] = {
    "mushrooms": DataFile(
        "mushrooms/agaricus-lepiota.data",
        373_704,
        "e65d082030501a3ebcbcd7c9f7c71aa9d28fdfff463bf4cf4716a3fe13ac360e",
        _UCI_URL + "mushroom/agaricus-lepiota.data",
    ),
    "mnist-train-images": _mnist(
        "train-images-idx3-ubyte.gz",
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    "mnist-train-labels": _mnist(
        "train-labels-idx1-ubyte.gz",
        28_881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    "mnist-test-images": _mnist(
        "t10k-images-idx3-ubyte.gz",
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    "mnist-test-labels": _mnist(
        "t10k-labels-idx1-ubyte.gz",
        4_542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    "cifar10": DataFile(
        "cifar10/cifar10.npz",
        169_596_192,
        "a44cc18e4ad961b5158c7da062a6232fb65938b615bf013046199b823b75c43d",
    ),
}


def cache_dir() -> Path:
    """The folder downloads go to: HEARSAY_CACHE, or hearsay/data in the XDG user cache folder."""
    own = os.environ.get("HEARSAY_CACHE")
    if own:
        return Path(own).expanduser()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative XDG_CACHE_HOME is to be ignored.
    base = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return base / "hearsay" / "data"


def locate(
    filename_key: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
) -> Path:
    """The path of a checked copy of one file in `FILES`, downloaded into the cache if need be.

    Args:
        filename_key: a key of `FILES`, such as "mushrooms".
        data_dir: a folder laid out as `DataFile.path` says, looked at first.
        progress: called while downloading; nothing is printed here.

    Raises:
        FileNotFoundError: the file is nowhere; the message lists every place and how to supply it.
        ChecksumError: the first copy found, or the download, is not the published file.
    """
    file = _lookup(filename_key)
    found, _ = _find(file, data_dir)
    if found is not None:
        _verify(found, file)
        return found
    if file.url is None:
        raise FileNotFoundError(
            _missing(file, data_dir, "no public address is known for this file")
        )
    target = cache_dir() / file.path
    try:
        _download(file, file.url, target, progress)
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it holds the connection, and lives on as the cause of the error below
        elif isinstance(error, OSError) and error.filename == str(target):
            raise
        reason = f"{file.url} failed ({type(error).__name__}: {error})"
        raise FileNotFoundError(_missing(file, data_dir, reason)) from error
    return target


def status(data_dir: str | os.PathLike[str] | None = None) -> list[FileStatus]:
    """For every file in `FILES`, where `locate` finds it without a download,
    and whether it is intact.
    """
    rows = []
    for key, file in FILES.items():
        found, source = _find(file, data_dir)
        intact = None if found is None else _digest_of(found) == file.sha256
        rows.append(FileStatus(key, file, found, source, intact))
    return rows


def _lookup(key: str) -> DataFile:
    if key in FILES:
        return FILES[key]
    near = difflib.get_close_matches(str(key), FILES, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"filename_key must be one of {', '.join(FILES)}, got {key!r}{hint}")


def _places(data_dir: str | os.PathLike[str] | None) -> list[tuple[str, Path | None]]:
    shared = os.environ.get("HEARSAY_DATA")
    return [
        ("data_dir", None if data_dir is None else Path(data_dir).expanduser()),
        ("HEARSAY_DATA", Path(shared).expanduser() if shared else None),
        ("cache", cache_dir()),
    ]


def _find(
    file: DataFile, data_dir: str | os.PathLike[str] | None
) -> tuple[Path | None, str | None]:
    for source, folder in _places(data_dir):
        if folder is not None and (folder / file.path).is_file():
            return folder / file.path, source
    return None, None


def _missing(file: DataFile, data_dir: str | os.PathLike[str] | None, download: str) -> str:
    looked = [
        f"  {source}: " + ("not given" if folder is None else f"{folder / file.path} is not there")
        for source, folder in _places(data_dir)
    ]
    return "\n".join(
        [
            f"{file.path} was not found. Looked at:",
            *looked,
            f"  download: {download}",
            (
                f"To supply it, put the file ({file.size} bytes, sha256 {file.sha256}) at"
                f" FOLDER/{file.path} and pass data_dir=FOLDER or set HEARSAY_DATA=FOLDER."
            ),
        ]
    )


@lru_cache(maxsize=256)
def _digest(path: str, size: int, modified_ns: int) -> str:
    # Size and time are part of the key, so that a file replaced while we run is read again.
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest_of(path: Path) -> str:
    stat = path.stat()
    return _digest(str(path.resolve()), stat.st_size, stat.st_mtime_ns)


def _verify(path: Path, file: DataFile) -> None:
    _compare(str(path), file, _digest_of(path), path.stat().st_size, "replace it or delete it")


def _compare(name: str, file: DataFile, digest: str, size: int, remedy: str) -> None:
    if digest != file.sha256:
        raise ChecksumError(
            f"{name} must have sha256 {file.sha256} ({file.size} bytes), got {digest} ({size}"
            f" bytes); {remedy}"
        )


def _download(file: DataFile, url: str, target: Path, progress: Progress | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    part = Path(name)
    try:
        with os.fdopen(
            handle, "wb", buffering=0
        ) as out:  # what a buffer cannot get rid of it would complain of once more

            def keep(chunk: bytes) -> None:
                left = memoryview(chunk)
                try:
                    while left:
                        left = left[out.write(left) :]
                except OSError as error:
                    # A full disk says nothing of the file, and is not the fault of the address.
                    raise OSError(
                        error.errno, f"cannot write it: {error.strerror}", str(target)
                    ) from error

            digest, received = _fetch(url, file.size, keep, progress)
        _compare(f"download of {file.path} from {url}", file, digest, received, "nothing was kept")
        # The name appears only once the content is known to be right, also when two processes race.
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _fetch(
    url: str, size: int, write: Callable[[bytes], object], progress: Progress | None
) -> tuple[str, int]:
    digest, received = hashlib.sha256(), 0
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
        # One chunk past the expected size is enough to know that the file is wrong.
        while received <= size:
            try:
                chunk = response.read(_CHUNK)
            except http.client.IncompleteRead as cut:
                # Some Python versions return a short read here, some raise: the checksum
                # judges both.
                chunk = cut.partial
            if not chunk:
                break
            write(chunk)
            digest.update(chunk)
            received += len(chunk)
            if progress is not None:
                progress(received, size)
    return digest.hexdigest(), received

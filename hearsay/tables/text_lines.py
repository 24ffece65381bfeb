"""The lines of a text file, each decoded for itself.

One line with a byte that is no UTF-8 must not change how another is read: a record depends on its
own row only. So a line that is valid UTF-8 is read as that, and any other as cp1252, the encoding
of older Windows programs, or as latin-1 where cp1252 has no such byte. UTF-16 has a mark at the
beginning of the file, or is refused; there a broken line is an error.
"""

from __future__ import annotations

import codecs
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_CHUNK = 2**20  # bytes
_MAGIC = {
    b"PK\x03\x04": "an Excel workbook or a zip file: save the table as CSV",
    b"PAR1": "a Parquet file: name it .parquet",
    b"\x1f\x8b": "compressed: unpack it first",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook: save the table as CSV",
}


class TextLines:
    """A text file, line by line, with the ends of the lines.

    Args:
      path: of the file.
      name: what errors call it.
      size: how many of its bytes there are to read; all of them unless given.
    """

    def __init__(self, path: Path, name: str, size: int | None = None) -> None:
        self.path, self.name, self.size = path, name, size
        # How many lines were no UTF-8, by what they were read as, once all have been read.
        self.others: Counter[str] = Counter()
        with path.open("rb") as handle:
            start = handle.read(_CHUNK)
        for magic, what in _MAGIC.items():
            if start.startswith(magic):
                raise ValueError(f"{name} must be a text file with a table, and is {what}")
        self._wide = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if self._wide and size is not None:
            raise ValueError(f"{name} must be UTF-8 to be read while it grows, got UTF-16")
        if b"\0" in start and not self._wide:
            raise ValueError(
                f"{name} must be a text file with a table, and has zero bytes: save it as UTF-8"
            )

    def __iter__(self) -> Iterator[str]:
        self.others.clear()
        if self._wide:
            yield from self._utf_16()
            return
        with self.path.open("rb") as handle:
            start = handle.read(min(len(codecs.BOM_UTF8), self._left(handle)))
            rest = b"" if start == codecs.BOM_UTF8 else start
            while chunk := handle.read(min(_CHUNK, self._left(handle))):
                whole, rest = _cut(rest + chunk)
                yield from self._decoded(whole)
            yield from self._decoded(rest)

    @property
    def notes(self) -> tuple[str, ...]:
        """For the owner."""
        return tuple(
            f"{many:,} {'lines' if many > 1 else 'line'} read as {encoding}, being no UTF-8"
            for encoding, many in sorted(self.others.items())
        )

    def _left(self, handle: BinaryIO) -> int:
        return _CHUNK if self.size is None else self.size - handle.tell()

    def _decoded(self, content: bytes) -> Iterator[str]:
        # Line ends are no part of a longer character: all of it is UTF-8 where every line is.
        try:
            yield from io.StringIO(content.decode(), newline="")
        except UnicodeDecodeError:
            yield from map(self._line, content.splitlines(keepends=True))

    def _line(self, content: bytes) -> str:
        for encoding in ("utf-8", "cp1252"):
            try:
                found = content.decode(encoding)
            except UnicodeDecodeError:
                continue
            break
        else:
            encoding, found = "latin-1", content.decode("latin-1")
        if encoding != "utf-8":
            self.others[encoding] += 1
        return found

    def _utf_16(self) -> Iterator[str]:
        try:
            with open(self.path, encoding="utf-16", newline="") as handle:
                yield from handle
        except UnicodeError:
            raise ValueError(
                f"{self.name} must be UTF-16, as its first bytes say, and is not; save it as UTF-8"
            ) from None


def _cut(content: bytes) -> tuple[bytes, bytes]:
    """Whole lines, and what is left."""
    at = content.rfind(b"\n") + 1
    # Lines that end with a return alone; the last one may be half of a line end.
    at = at or content.rfind(b"\r", 0, -1) + 1
    return content[:at], content[at:]

"""Text files to which lines are added while they are read: what of them is whole, and what a line
is that cannot be read.
"""

from __future__ import annotations

import io
from pathlib import Path

from hearsay.tables.cells import floats

_CHUNK = 2**16  # bytes in which the last line end is looked for
BLANK = b" \t\r\n"
EMPTY = BLANK + b',;|"'  # all that is on a line of a table without anything in its cells


def whole_lines(path: Path) -> int:
    """How many bytes of a file are lines that have been written to their end."""
    with path.open("rb") as file:
        end = file.seek(0, io.SEEK_END)
        while end:
            begin = max(0, end - _CHUNK)
            file.seek(begin)
            if (at := file.read(end - begin).rfind(b"\n")) >= 0:
                return begin + at + 1
            end = begin
    return 0


def lines_of(path: Path, size: int, nothing: bytes, comment: bytes | None = None) -> int:
    """How many lines of the first `size` bytes have more than `nothing` on them, up to two."""
    found = 0
    with path.open("rb") as file:
        while found < 2 and file.tell() < size:
            line = file.readline().strip(nothing)
            found += bool(line) and not (comment and line.startswith(comment))
    return found


def first_of(path: Path, size: int) -> io.TextIOWrapper:
    """The first `size` bytes of a file as text, read as all of it is."""
    with path.open("rb") as file:
        return io.TextIOWrapper(io.BytesIO(file.read(size)))


def odd_line(path: Path) -> str:
    """Of a .csv that cannot be read, for an error: the line that is no row of numbers."""
    width = None
    with path.open(errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not (content := line.partition("#")[0].rstrip("\n")):
                continue
            cells = content.split(",")
            width = width or len(cells)
            if len(cells) != width or "_" in content or floats(cells) is None:
                return f", line {number}"
    return ""


def require_growing(path: Path, name: str, kinds: tuple[str, ...]) -> None:
    if path.suffix.lower() not in kinds:
        raise ValueError(
            f"data of agent {name}: with follow in [network] it must be a file that grows line by"
            f" line ({', '.join(kinds)}), got {path}"
        )
    with path.open("rb") as file:
        start = file.read(_CHUNK)
    if b"\n" not in start and b"\r" in start[:-1]:
        raise ValueError(
            f"data of agent {name}: with follow in [network] its lines must end with a line feed,"
            f" and those of {path} end with a return alone: save it with other line ends"
        )

"""`hearsay schema`: a draft of what is public of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hearsay._files import write_atomically
from hearsay.cli.options import Flag
from hearsay.cli.screen import note
from hearsay.tables.drafting import MEASURED, WHY, draft


def schema(
    table: Annotated[Path, typer.Argument(help="A table with a header (.csv, .tsv, .parquet).")],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Where the draft goes (default: to the screen)."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The column to be predicted (default: by its name).")
    ] = None,
    ranges_are_public: Annotated[
        bool,
        Flag(
            "--ranges-are-public",
            help="Take ranges and levels from the rows: everybody will know them.",
        ),
    ] = False,
) -> None:
    """Draft a schema.toml from a table's names and types: what is public of its columns.

    Ranges and levels are left to be filled in, because those of private rows are private, too.
    """
    if out is not None and out.exists():
        raise ValueError(f"{out} must not be there yet: a schema may have been filled in by hand")
    found = draft(table, target=target, ranges_are_public=ranges_are_public)
    if out is None:
        print(found.text, end="")
    else:
        write_atomically(out, found.text.encode())
    said = [MEASURED if ranges_are_public else WHY, *found.warnings]
    if left := found.text.count("FILL IN"):
        where = "the draft" if out is None else str(out)
        said.append(f"{left} {'lines' if left > 1 else 'line'} of {where} to be filled in")
    for line in said:
        note(line)

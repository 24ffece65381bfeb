"""`hearsay network adopt`: what an operator says of a budget file that agents refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hearsay.cli.json_output import answer, answering
from hearsay.cli.network_options import require_extra
from hearsay.cli.screen import console


@answering
def adopt(
    file: Annotated[Path, typer.Argument(help="NAME.budget in the folder of states.")],
) -> None:
    """Make a budget file that of the agent whose name it bears: after a new name, or where the
    file is lost for good (docs/operations.md).

    Runs with a ledger beside it that it does not know are entered as INFINITE, for all records of
    that agent, and this is not taken back.
    """
    require_extra()
    from hearsay.deploy.missing import adopt as adopted

    was, entered = adopted(file)
    name = file.stem
    answer(agent=name, was=was or None, entered=entered)
    before = f", and was that of {was}" if was not in ("", name) else ""
    lines = [f"{file} is the budget file of {name}{before}."]
    lines += [
        f"Run {run} was entered as infinite: what it and runs before it spent is not known."
        for run in entered
    ]
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)

"""The command line.

Everything it does, it does through the library; only the cli files know typer and rich.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from hearsay._version import VERSION
from hearsay.cli.agent import agent
from hearsay.cli.algorithms import algorithms, check_algorithm
from hearsay.cli.attack import attack
from hearsay.cli.audit import audit
from hearsay.cli.certify import certify
from hearsay.cli.fitting import fit
from hearsay.cli.frontier import demo, frontier
from hearsay.cli.network import network
from hearsay.cli.planning import plan
from hearsay.cli.predicting import predict
from hearsay.cli.reproducing import data, reproduce
from hearsay.cli.schema import schema
from hearsay.cli.screen import errors
from hearsay.cli.training import compare, run
from hearsay.cli.verify import verify

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Differentially private learning on networks: agents exchange only noisy messages, and"
        " every run comes with a privacy certificate that is true.\n\nStart here: [bold]hearsay"
        " demo[/bold], then [bold]hearsay run --help[/bold]"
    ),
)

# In the order in which --help lists them.
for command in (
    fit,
    predict,
    agent,
    schema,
    run,
    certify,
    verify,
    algorithms,
    check_algorithm,
    plan,
    compare,
    frontier,
    attack,
    audit,
    reproduce,
    data,
    demo,
):
    app.command()(command)
app.add_typer(network, name="network")


def _say_version(asked: bool) -> None:
    if asked:
        print(f"hearsay {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_say_version, is_eager=True
        ),
    ] = False,
) -> None:
    """What may stand before a command; the texts of --help are above."""


def main() -> None:
    """Entry point: what the user got wrong is one clear line,
    not a traceback (set HEARSAY_DEBUG=1 to see one).
    """
    try:
        app()
    except (ValueError, TypeError, OSError) as error:
        if os.environ.get("HEARSAY_DEBUG"):
            raise
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:  # before or between what the commands themselves catch
        sys.exit(130)


if __name__ == "__main__":
    main()

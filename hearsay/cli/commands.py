"""The command line.

Everything it does, it does through the library; only the cli files know typer and rich.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import warnings
from itertools import pairwise
from typing import Annotated, Any, TextIO

import typer

from hearsay import _interrupts
from hearsay._files import Notice
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
from hearsay.cli.screen import errors, note
from hearsay.cli.training import compare, run
from hearsay.cli.verify import verify

# What else may be wrong with a command's words: an option that there is not, no command at all.
USAGE: type[Exception] = typer.BadParameter.__bases__[0]  # type: ignore[assignment]
_KIND = re.compile(r" a valid (\w+)")
_KINDS = {"float": "a number", "number": "a number", "integer": "a whole number"}

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Differentially private learning on networks: agents exchange only noisy messages, and"
        " every run comes with a privacy certificate that is true.\n\nStart here: [bold]hearsay"
        " demo[/bold]; with tables of your own [bold]hearsay schema[/bold], then [bold]hearsay"
        " fit[/bold]"
    ),
)

# In the order in which --help lists them.
for panel, commands in {
    "First": [demo],
    "Tables of your own": [schema, fit, predict],
    "Agents on machines of their own": [agent],
    "Simulated networks": [run, compare, frontier, plan],
    "Certificates, and attacks on them": [certify, verify, audit, attack],
    "Algorithms and papers": [algorithms, check_algorithm, reproduce, data],
}.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(network, name="network", rich_help_panel="Agents on machines of their own")


def _flowing(text: str | None) -> str:
    """Paragraphs without the line breaks of the source: the screen has its own."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(one.split()) for one in paragraphs)


for each in (*app.registered_commands, *network.registered_commands):
    each.help = _flowing(each.callback.__doc__ if each.callback else None)


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
    with warnings.catch_warnings():
        warnings.simplefilter("always", Notice)
        warnings.showwarning = _shown
        _main()


def _shown(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Notices as lines; other warnings as Python has them."""
    if issubclass(category, Notice):
        note(str(message))
    else:
        print(warnings.formatwarning(message, category, filename, lineno), end="", file=sys.stderr)


def _main() -> None:
    try:
        _interrupts.started()
        code = app(standalone_mode=False)
    except typer.BadParameter as error:
        errors.print(f"error: {_wrong(error)}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except USAGE as error:
        error.show()  # type: ignore[attr-defined]
        sys.exit(2)
    except (ValueError, TypeError, OSError) as error:
        if os.environ.get("HEARSAY_DEBUG"):
            raise
        # Of several processes the one that fails says why, whichever it is.
        errors.quiet = False
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except MemoryError as error:
        if os.environ.get("HEARSAY_DEBUG"):
            raise
        errors.quiet = False
        told = f"error: there is not enough memory for this. {error}".strip()
        errors.print(told, style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):  # before or between what commands themselves catch
        sys.exit(130)
    sys.exit(code or 0)


def _wrong(error: Any) -> str:
    """What is wrong with an option or an argument, as all errors say it."""
    parameter, told = error.param, error.format_message()
    name = "" if parameter is None else (parameter.opts or [""])[0]
    name = name if name.startswith("-") else name.upper()
    asked = f" ({error.ctx.command_path} --help says more)" if error.ctx else ""
    if name and (found := _KIND.search(told)):
        return f"{name} must be {_KINDS.get(found[1], found[1])}{_given(name)}{asked}"
    if name and told.startswith("Missing"):
        return f"{name} must be given{asked}"
    return f"{told}{asked}"


def _given(name: str) -> str:
    """What stands behind an option on the command line; "" for an argument."""
    words = sys.argv[1:]
    found = [one.partition("=")[2] for one in words if one.startswith(f"{name}=")]
    found += [two for one, two in pairwise(words) if one == name]
    return f", got {found[-1]!r}" if found else ""


if __name__ == "__main__":
    main()

"""`hearsay algorithms` and `hearsay check-algorithm`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer

from hearsay.algorithms import outside, registry
from hearsay.cli import folders
from hearsay.cli.json_output import answer, answering
from hearsay.cli.options import NAMES, Flag, word
from hearsay.cli.screen import progress_bar


@answering
def algorithms() -> None:
    """List every algorithm that can be used, those of installed packages too (none is imported)."""
    found = listed()
    width = max(len(one.name) for one in found)
    lines = [f"{one.name:<{width}}  {one.about}" for one in found]
    print("\n".join([*lines, "", "Any other: package.module:Class (docs/adding-an-algorithm.md)"]))
    answer(algorithms=[one._asdict() for one in found])


@answering
def check_algorithm(
    name: Annotated[str, typer.Argument(help=f"{NAMES}.")],
    settings: Annotated[
        list[str] | None, Flag("--set", help="An option of it, as option=value; repeatable.")
    ] = None,
    quick: Annotated[
        bool, Flag("--quick", help="One small problem instead of eight; nothing is noted.")
    ] = False,
) -> None:
    """Hold an algorithm against the contract, and its certificate against adversaries.

    A pass is noted for this very source, and certificates of the algorithm say so. It can refute a
    certificate, never prove it. Exit code 4: a check fails.
    """
    try:
        report = checked(name, settings or (), not quick)
    except KeyboardInterrupt:
        folders.interrupted("Nothing was noted.")
    print(report)
    answer(
        algorithm=report.algorithm.name,
        passed=report.passed,
        whole=report.whole,
        noted=report.stamped,
        checks=[check._asdict() for check in report.checks],
    )
    if not report.passed:
        raise typer.Exit(4)


class Listed(NamedTuple):
    """An algorithm: its name, what it is or where it is from, whether that name means it."""

    name: str
    about: str
    usable: bool


def listed() -> list[Listed]:
    """hearsay's own and those of installed packages. Only metadata is read."""
    found, own = outside.installed(), registry.ENTRIES
    known = [Listed(name, entry.summary, True) for name, entry in own.items()]
    for name, entries in found.items():
        for entry in entries:
            note = f"{entry.value} of {outside.package_of(entry)}"
            if name in own:
                note += ": NOT USED, because the name is hearsay's own; name it by its place"
            elif len(entries) > 1:
                note += ": AMBIGUOUS, because packages share the name; name it by its place"
            known.append(Listed(name, note, name not in own and len(entries) == 1))
    return known


def checked(name: str, settings: Sequence[str], thorough: bool) -> Any:
    """What is found about it (audit/checking.py)."""
    from hearsay.audit import checking
    from hearsay.config import named_algorithm
    from hearsay.simulation.simulating import enable_compilation_cache

    enable_compilation_cache()
    options: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--set must be option=value, got {setting!r}")
        options[key] = word(value)
    # The name was typed: it may be a place.
    algorithm = named_algorithm({"name": name, **options}, 1000, allowed=(name,))
    with progress_bar() as show:
        return checking.check_algorithm(algorithm, thorough=thorough, progress=_bar(show))


def _bar(show: Any) -> Any:
    return lambda name, done, total: show("checking", done, total)

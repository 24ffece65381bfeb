"""`hearsay verify`: what a verifier has to say, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hearsay.cli.json_output import answer, answering
from hearsay.mechanisms import MECHANISMS
from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.certificate import Certificate, show_horizon
from hearsay.privacy.verification import Verdict, verify_text
from hearsay.privacy.words import printable

# More sentences than this about one file are counted, not printed.
_MOST = 50


@answering
def verify(
    files: Annotated[
        list[Path], typer.Argument(help="Certificates: certificate.json of a run.", exists=True)
    ],
) -> None:
    """Compute every number of a certificate again from the description in it.

    It needs no data and no network. Exit code 2: a file is damaged, a number is missing or lower
    than what it costs, or there is no description.
    """
    results = [(path, *verified(path)) for path in files]
    for _, lines, _, _ in results:
        print("\n".join(lines))
    holds = all(verdict.holds for *_, verdict in results)
    answer(
        holds=holds,
        files=[
            {
                "file": path,
                "holds": verdict.holds,
                "numbers": verdict.numbers,
                "wrong": verdict.wrong,
                "trusted": verdict.trusted,
                "notes": verdict.notes,
                "epsilon": None if found is None else max(found.epsilon, default=None),
                "delta": None if found is None else found.slack,
            }
            for path, _, found, verdict in results
        ],
    )
    if not holds:
        raise typer.Exit(2)


def verified(path: Path) -> tuple[list[str], Certificate | None, Verdict]:
    """(lines to print, the certificate where it can be read, what is to be said of it)."""
    try:
        certificate, verdict = verify_text(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        certificate, verdict = None, Verdict((f"a certificate must be text: {error}",))
    # What a file says must not look like what is said of it.
    lines = [printable(line) for line in (f"{path}", *_lines(certificate, verdict))]
    return lines, certificate, verdict


def _lines(certificate: Certificate | None, verdict: Verdict) -> list[str]:
    lines = []
    if certificate is not None:
        many, law = len(certificate.budgets), MECHANISMS[certificate.mechanism]
        lines.append(
            f"  {certificate.algorithm}, {show_horizon(certificate.horizon)},"
            f" {many:,} agent{'' if many == 1 else 's'}, {certificate.mechanism} {law.noun}"
            + (", deployed" if certificate.deployed else "")
            + ("" if certificate.adjacency == REPLACE else f", {certificate.adjacency} adjacency")
        )
    lines += [f"  WRONG    {text}" for text in verdict.wrong[:_MOST]]
    if len(verdict.wrong) > _MOST:
        lines.append(f"  WRONG    ... and {len(verdict.wrong) - _MOST:,} more")
    if verdict.holds:
        lines.append(
            f"  proved   all {verdict.numbers:,} numbers follow from the descriptions in this file"
        )
        lines.append(
            "  trusted  that the run was as described is its issuer's word, and that nothing it"
            " rests on is left out; it declares:"
        )
        lines += [f"           - {text}" for text in verdict.trusted] or [
            "           - nothing more"
        ]
    lines += [f"  note     {text}" for text in verdict.notes]
    return lines

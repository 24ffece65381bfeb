"""What a notebook shows of certificates, runs and frontiers (`_repr_html_`): small pieces of HTML
that stand alone (templates/inline.html), in the notebook's own colours, without script.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hearsay.mechanisms import MECHANISMS
from hearsay.privacy.certificate import Certificate, show_horizon
from hearsay.report.certificate import certificate_section
from hearsay.report.frontier import accuracies, drawn, verdict
from hearsay.report.numbers import count
from hearsay.report.page import Table, picture, render
from hearsay.report.run import headline
from hearsay.report.worth import gains, in_words
from hearsay.simulation.worth import worth

if TYPE_CHECKING:
    from hearsay.simulation.result import Run
    from hearsay.tradeoff.running import Frontier

COUNTED = "Metrics are counted on records: they are private, and no certificate covers them."


def certificate_html(cert: Certificate) -> str:
    """Budgets first, what they rest on behind a click."""
    law = MECHANISMS[cert.mechanism]
    about = f"{show_horizon(cert.horizon)}, {cert.mechanism} {law.noun}"
    return _piece(f"Privacy certificate: {cert.algorithm}", about, certificate=cert)


def run_html(run: Run) -> str:
    """The numbers that one asks for first, and the certificate behind a click."""
    found = None if run.beside is None else worth(run)
    beside = [] if found is None else [("Beside it", in_words(found), gains(found))]
    table = Table("At the end", ("", "value", ""), [*headline(run), *beside])
    about = (
        f"{count(run.graph.agents, 'agent')} on a {run.graph.name} graph,"
        f" {count(int(run.steps[-1]), 'step')}, {count(len(run.seeds), 'seed')}"
    )
    return _piece(
        f"{run.algorithm.name} on {run.problem.name}",
        about,
        alerts=[f"Stopped early: {run.stopped}"] if run.stopped else [],
        shown=table,
        notes=[COUNTED],
        certificate=run.certificate,
    )


def frontier_html(found: Frontier) -> str:
    """The picture and the table."""
    # Two frontiers in one notebook must not share the names inside their drawings.
    name = f"frontier-{hashlib.sha256(found.to_csv().encode()).hexdigest()[:8]}"
    said = verdict(found)
    return _piece(
        "Accuracy against epsilon",
        found.title,
        alerts=[f"Not measured: {', '.join(found.missing)}"] if found.missing else [],
        picture=picture(name, drawn(found), "Accuracy of the released model."),
        shown=accuracies(found),
        notes=[*([said] if said else []), COUNTED],
    )


def _piece(title: str, about: str, certificate: Certificate | None = None, **more: object) -> str:
    usual: dict[str, object] = {"alerts": [], "notes": [], "shown": None, "picture": None}
    section = {} if certificate is None else certificate_section(certificate)
    given = {**usual, **more, "certificate": section}
    return render("inline.html", title=title, about=about, **given)

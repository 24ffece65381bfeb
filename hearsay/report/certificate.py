"""The certificate as a section of a page (templates/certificate.html); what it says is laid out by
the certificate itself (privacy/certificate.py), as for its text.
"""

from __future__ import annotations

import math

import numpy as np

from hearsay.privacy.adjacency import REPLACE
from hearsay.privacy.certificate import Certificate, show, show_horizon
from hearsay.report.collusion import collusion_section
from hearsay.report.numbers import largest, quantity
from hearsay.report.page import Table

# Beyond this even a sceptical reader of the literature speaks of no meaningful protection.
_WEAK = 10.0


def certificate_section(cert: Certificate) -> dict[str, object]:
    """What the template is given."""
    rows, rest = cert.rows()
    heads = ("agent", *(column.title for column in cert.columns()))
    return {
        "scope": _scope(cert),
        "meaning": _meaning(cert),
        "weak": _weak(cert),
        "warnings": cert.warnings,
        "budgets": Table(
            "Budget of every agent, rounded up", heads, [[whose, *cells] for whose, cells in rows]
        ),
        "rest": rest,
        "compared": cert.compared[:1].upper() + cert.compared[1:],
        "collusion": collusion_section(cert),
        "assumptions": [(a, cert.who(agents)) for a, agents in cert.assumed()],
        "not_covered": cert.not_covered[0].upper() + cert.not_covered[1:],
    }


def _scope(cert: Certificate) -> list[tuple[str, str]]:
    noise = f"{cert.mechanism.capitalize()}, " + (
        f"epsilon holds at delta = {_slack(cert.slack)}"
        if cert.slack
        else "pure epsilon (delta = 0)"
    )
    return [
        (
            "Protects",
            f"one record: epsilon bounds how well anyone can tell apart {cert.adjacencies}",
        ),
        ("Against", f"someone who {cert.adversaries}"),
        (
            "Horizon",
            show_horizon(cert.horizon) + ("" if math.isinf(cert.horizon) else " from every agent"),
        ),
        ("Noise", noise),
        ("Use of records", cert.patterns),
        ("Bound by", cert.bases),
    ]


def _meaning(cert: Certificate) -> str:
    """The largest budget as odds."""
    worst, (top, of) = max(cert.epsilon), largest(cert.epsilon, cert.names)
    if math.isinf(worst):
        return (
            "An infinite epsilon is no guarantee at all: nothing bounds what the messages reveal."
        )
    factor = show(math.exp(worst)) if worst <= _WEAK else f"exp({top})"
    slack = f", up to a slack of delta = {_slack(cert.slack)}" if cert.slack else ""
    whose = "any agent" if of == "every agent" else f"{of}, the least protected,"
    planned = f", if at most {cert.colluders} of the others collude" if cert.secrets else ""
    empty = "" if cert.adjacency == REPLACE else " being there or empty"
    return (
        "In other words: all messages together can multiply anyone's odds about one record of"
        f" {whose}{empty} by at most {factor}{slack}{planned}."
    )


def _weak(cert: Certificate) -> str:
    """A plain word where a budget is too large to protect anyone."""
    weak = cert.budgets.agents[np.array(cert.epsilon) > _WEAK]
    if not weak.size or not cert.finite:
        return ""
    return (
        f"Epsilon is above {_WEAK:g} for {cert.who(weak)}: a true bound, but little protection in"
        " practice."
    )


def _slack(delta: float) -> str:
    """Rounded up, as budgets are."""
    up = (
        0.0 if float(f"{delta:.3e}") >= delta else 0.5 * 10.0 ** (math.floor(math.log10(delta)) - 3)
    )
    return quantity(delta + up)

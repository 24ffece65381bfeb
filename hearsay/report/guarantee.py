"""The certificate as a section of a page; what it says is laid out by the certificate itself
(privacy/certificate.py), as for its text.
"""

from __future__ import annotations

import math

from hearsay.privacy.certificate import PAPER, Certificate, show, show_horizon
from hearsay.report.numbers import largest, quantity
from hearsay.report.page import Html, facts, join, notice, section, table, tag

_KINDS = {
    "enforced": "the code makes it so",
    "derived": "proved from the model",
    "declared": "taken on the user's word",
}
# Beyond this even a sceptical reader of the literature speaks of no meaningful protection.
_WEAK = 10.0


def certificate(cert: Certificate) -> Html:
    """Who is protected, against whom, by how much, resting on what, and what is left out."""
    warned = tag("ul", *(tag("li", w) for w in cert.warnings))
    return section(
        "Privacy certificate",
        facts(_scope(cert)),
        _meaning(cert),
        notice("alert", tag("p", tag("strong", "Warnings")), warned) if cert.warnings else "",
        _budgets(cert),
        tag("h3", "What this rests on"),
        _assumptions(cert),
        tag("h3", "What this does not cover"),
        tag("p", cert.not_covered[0].upper() + cert.not_covered[1:] + "."),
    )


def _scope(cert: Certificate) -> list[tuple[object, object]]:
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


def _meaning(cert: Certificate) -> Html:
    """The largest budget as odds, and a plain word when it is too large to protect anyone."""
    worst, (top, of) = max(cert.epsilon), largest(cert.epsilon, cert.names)
    if math.isinf(worst):
        return tag(
            "p",
            "An infinite epsilon is no guarantee at all: nothing bounds what the messages reveal.",
        )
    factor = show(math.exp(worst)) if worst <= _WEAK else f"exp({top})"
    slack = f", up to a slack of delta = {_slack(cert.slack)}" if cert.slack else ""
    whose = "any agent" if of == "every agent" else f"{of}, the least protected,"
    said = tag(
        "p",
        "In other words: all messages together can multiply anyone's odds about one record of"
        f" {whose} by at most {factor}{slack}.",
    )
    if worst <= _WEAK:
        return said
    weak = [b.agent for b in cert.budgets if b.epsilon > _WEAK]
    plain = (
        f"Epsilon is above {_WEAK:g} for {cert.who(weak)}: a true bound, but little protection in"
        " practice."
    )
    return join([said, notice("note", tag("p", plain))])


def _slack(delta: float) -> str:
    """Rounded up, as budgets are."""
    up = (
        0.0 if float(f"{delta:.3e}") >= delta else 0.5 * 10.0 ** (math.floor(math.log10(delta)) - 3)
    )
    return quantity(delta + up)


def _budgets(cert: Certificate) -> Html:
    rows, rest = cert.rows()
    heads = ("agent", *(column.title for column in cert.columns()))
    caption = "Budget of every agent, rounded up"
    return join(
        [
            table(caption, heads, [[whose, *cells] for whose, cells in rows]),
            tag("p", rest) if rest else "",
        ]
    )


def _assumptions(cert: Certificate) -> Html:
    items = []
    for assumption, agents in cert.shared_assumptions():
        badge = tag("span", assumption.kind, class_=f"badge {assumption.kind}")
        whose = tag("span", f" ({cert.who(agents)})", class_="soft")
        items.append(tag("li", badge, tag("span", assumption.text, whose)))
    key = "; ".join(f"{kind}: {meaning}" for kind, meaning in _KINDS.items())
    return join(
        [tag("ul", *items, class_="rests"), tag("p", f"{key[0].upper()}{key[1:]}.", class_="soft")]
    )


__all__ = ["PAPER", "certificate"]

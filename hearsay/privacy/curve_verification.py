"""Are the curve of a budget, and the gain that it counts on, what its secrets are worth?

Who shares noise with whom is in the certificate. From it the worst coalition of every size is found
again, and from its gain and the description of the agent every point of the curve. What would take
too long is refused, and said to be so.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from hearsay.privacy.budgets import AgentBudget, Group
from hearsay.privacy.certificate import Certificate
from hearsay.privacy.coalition_words import assumptions
from hearsay.privacy.coalitions import Shared
from hearsay.privacy.description import Description, numbers

# A machine may differ in the last digits; gains and epsilons are rounded by ten times as much.
TOLERANCE = 1e-10
# Agents and secrets, points of a curve, and agents times what one of them takes.
_AGENTS, _SECRETS, _POINTS, _STEPS = 2**20, 2**23, 32, 2**25
_OPERATIONS = 2**32


def too_many(certificate: Certificate) -> str:
    """What must be smaller for the worst coalitions to be found again, or ""."""
    shared, asked = certificate.secrets, len(certificate.budgets)
    if shared is None:
        return ""
    agents = shared.agents
    secrets = len(shared.pairs) or agents * (agents - 1) // 2
    points = max((len(b.curve) for b in certificate.budgets.kinds), default=0)
    closed = not shared.pairs and len(shared.ratios) == 1
    # Of very many agents only the nearest ones of each are looked at.
    small = agents <= _AGENTS and 0 < len(shared.pairs) <= _SECRETS
    slow = not closed and not (small and shared.nearby)
    for name, size, most in (
        ("agents of secrets", agents, _AGENTS),
        ("pairs of secrets", secrets, _SECRETS),
        ("points of a curve", points, _POINTS),
        ("budgets times agents^2 of secrets", asked * agents**2 if closed else 0, _OPERATIONS),
        ("budgets times pairs of secrets", asked * secrets if slow else 0, _STEPS),
    ):
        if size > most:
            return f"{name} must be at most {most:,} to be verified, got {size:,}"
    if (parts := len(shared.components())) > 1:
        # All coalitions of a small part are tried, and there may be very many small parts.
        return f"secrets must connect all agents to be verified, got {parts:,} parts"
    return ""


def curve_faults(certificate: Certificate, group: Group, description: Description) -> Iterator[str]:
    """What is wrong with the gain and the curve of a budget, one sentence each.

    A point may be as low as what a later one costs: that holds against fewer colluders too.
    """
    shared, planned = certificate.secrets, description.adversary.colluders
    if shared is None or planned is None:
        return
    # Agents in the same position have the same gains.
    places = np.array(shared.positions())[group.agents]
    faults = dict[str, None]()
    for place in np.unique(places).tolist():
        faults |= dict.fromkeys(_at(certificate, group.budget, description, place, shared, planned))
    yield from faults


def _at(
    certificate: Certificate,
    budget: AgentBudget,
    description: Description,
    agent: int,
    shared: Shared,
    planned: int,
) -> Iterator[str]:
    """The same for an agent that has the budget."""
    worth = shared.gain(agent, planned)
    # Written so that what is no number is refused.
    if not description.gain <= worth.value * (1 + TOLERANCE):
        yield (
            f"gain must be at most {worth.value!r}, which is what its secrets are worth against"
            f" {planned} colluders, got {description.gain!r}"
        )
    for words in assumptions(planned, shared, worth.how, description.account.amplified):
        if words not in description.assumptions:
            yield f"assumptions must say what shared noise rests on: {words.text:.120}..."
    gains = [shared.gain(agent, point.colluders) for point in budget.curve]
    costs = [
        numbers(
            description.against(point.colluders, gain.value),
            certificate.horizon,
            certificate.delta,
        ).epsilon
        for point, gain in zip(budget.curve, gains, strict=True)
    ]
    least = [*accumulate(reversed(costs), min)][::-1]
    for point, gain, cost in zip(budget.curve, gains, least, strict=True):
        where = f"of the curve against {point.colluders} colluders"
        if not point.epsilon >= cost * (1 - TOLERANCE):
            yield (
                f"epsilon {where} must be at least {cost!r}, which is what it costs, got"
                f" {point.epsilon!r}"
            )
        if point.how != gain.how:
            yield f"how {where} must be {gain.how!r}, got {point.how!r:.200}"

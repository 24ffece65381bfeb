"""What a budget rests on that counts on shared noise, in words. Certificates say it, and a verifier
looks for it: the same numbers without it would promise more than is true.
"""

from __future__ import annotations

from hearsay.privacy.account import Assumption
from hearsay.privacy.coalitions import Shared

# Given whose noise is known, a budget with secret batches is proved; not for choosing it meanwhile.
_SETTLED = Assumption(
    "declared",
    "who colludes is settled before the run, whatever its messages: with secret batches nothing is"
    " proved about a coalition that is chosen while looking at them",
)


def assumptions(
    colluders: int, shared: Shared, how: str, secret_batches: bool
) -> tuple[Assumption, ...]:
    """What a budget rests on that counts on shared noise.

    Args:
      colluders: against how many.
      shared: who shares what.
      how: the way in which the worst coalition was found.
      secret_batches: it counts on batches being secret as well.
    """
    others = shared.agents - 1
    most = f"at most {colluders} of the {others} other agents collude"
    return (
        Assumption(
            "declared",
            f"{most if colluders else 'no other agent colludes'}. All others follow the plan: they"
            " add their own noise in full, keep one ledger, and never, also later, tell or lose a"
            " key. Whoever does not counts as a colluder (an earlier version with less noise, noise"
            " from a seed, a ledger that was put back, a key that is stolen years later), and so"
            " does every certificate, not person, in one hand",
        ),
        Assumption(
            "declared",
            "computational: the messages are as good as those of a run that is private in the full"
            " sense (SIM-CDP), for everybody who cannot break X25519, HKDF-SHA256 or the generator"
            " of the shared noise; delta grows by (1 + e^epsilon) times the chance of breaking"
            " them. Only the epsilon with all others colluding holds against unlimited computing"
            " power, and rests on nobody else's noise",
        ),
        Assumption(
            "derived",
            f"shared noise {_loud(shared)} times own noise,"
            f" {'every pair' if not shared.pairs else f'{len(shared.pairs):,} pairs'} of"
            f" {shared.agents} agents; worst coalition: {how}",
        ),
        Assumption(
            "derived",
            "a person with records at two honest agents is protected by (mu_i + mu_j)-GDP where"
            " each agent alone gives mu-GDP: that may be a little more than the sum of the two"
            " budgets, since their noise is shared",
        ),
        *((_SETTLED,) if secret_batches else ()),
    )


def _loud(shared: Shared) -> str:
    """How loud shared noise is, in words."""
    low, high = min(shared.ratios), max(shared.ratios)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"

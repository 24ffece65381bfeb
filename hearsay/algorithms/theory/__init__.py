"""The papers' conditions and rates as named checks: does each hold for this configuration, and
by how much.

A finding never stops a run (the algorithms are meaningful outside the theorems), and nothing here
is a privacy guarantee: budgets come from privacy/ alone.
"""

from hearsay.algorithms.theory.exponents import gradient_rate, oracle_exponent, output_rate
from hearsay.algorithms.theory.findings import below
from hearsay.algorithms.theory.gradient_tracking import gradient_tracking, s1_findings, s2_findings
from hearsay.algorithms.theory.ldp_online import ldp_online
from hearsay.algorithms.theory.ldp_online import rate as ldp_rate
from hearsay.algorithms.theory.sample_sizes import sample_sizes

__all__ = [
    "below",
    "gradient_rate",
    "gradient_tracking",
    "ldp_online",
    "ldp_rate",
    "oracle_exponent",
    "output_rate",
    "s1_findings",
    "s2_findings",
    "sample_sizes",
]

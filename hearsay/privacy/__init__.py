"""The privacy engine: float64 NumPy and SciPy only, never jax.

It knows schedules and laws of noise, and nothing else of the library.
"""

from hearsay.privacy.certificate import AgentBudget, Certificate
from hearsay.privacy.participation import Cyclic, Every, History, Once
from hearsay.privacy.recursion import Account, Assumption, Recursion, Release

__all__ = [
    "Account",
    "AgentBudget",
    "Assumption",
    "Certificate",
    "Cyclic",
    "Every",
    "History",
    "Once",
    "Recursion",
    "Release",
]

"""The privacy engine: float64 NumPy and SciPy only, never jax.

It knows schedules and laws of noise, and nothing else of the library.
"""

from hearsay.privacy.account import Account, Assumption, Bound
from hearsay.privacy.certificate import AgentBudget, Certificate
from hearsay.privacy.description import Adjacency, Adversary, Description
from hearsay.privacy.factorized import FactorizedAccount
from hearsay.privacy.participation import Every, FromArrival, Once, Periodic
from hearsay.privacy.recursion import Recursion, Release
from hearsay.privacy.recursion_account import RecursionAccount

__all__ = [
    "Account",
    "Adjacency",
    "Adversary",
    "AgentBudget",
    "Assumption",
    "Bound",
    "Certificate",
    "Description",
    "Every",
    "FactorizedAccount",
    "FromArrival",
    "Once",
    "Periodic",
    "Recursion",
    "RecursionAccount",
    "Release",
]

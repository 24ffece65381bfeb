"""The one way from (algorithm, problem, graph) to what a run costs.

    describing.py   what a certificate needs, as data: accounts and descriptions
    stamps.py       which algorithms from outside have passed hearsay.check_algorithm
    certifying.py   certificates, ideal and deployed; noise for a budget
    colluding.py    the curve over the number of colluders, where agents share noise
    spending.py     what is used up message by message, and how many messages fit a budget

What needs no algorithm is in privacy/.
"""

from hearsay.certification.certifying import (
    HorizonBudgets,
    budget_by_horizon,
    calibrate,
    certify,
    deployed,
)
from hearsay.certification.describing import accounts, amplified, best_account, describe
from hearsay.certification.spending import (
    allowance,
    epsilon_after,
    limit_in_words,
    messages_within,
    spent_after,
    unit,
)

__all__ = [
    "HorizonBudgets",
    "accounts",
    "allowance",
    "amplified",
    "best_account",
    "budget_by_horizon",
    "calibrate",
    "certify",
    "deployed",
    "describe",
    "epsilon_after",
    "limit_in_words",
    "messages_within",
    "spent_after",
    "unit",
]

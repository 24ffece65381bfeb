"""What the name of a column says of it. Names are public: whoever drafts by them tells nothing."""

from __future__ import annotations

import re

_IDENTIFIER = re.compile(
    r"(^|[^a-z])(id|ids|uuid|guid|key|index|name|names|surname|forename|patient|patients|person"
    r"|subject|case|mrn|ssn|nhs|email|mail|phone|address|street|zip|postcode|birthday)([^a-z]|$)"
)
_AMOUNT = re.compile(
    r"(^|[^a-z])(amount|balance|claim|consumption|costs?|debt|expenses|income|kwh|loan|loss|losses"
    r"|population|premium|price|profit|revenue|salary|sales|sum|turnover|usage|wage)([^a-z]|$)"
)
_TARGET = ("target", "label", "class", "outcome", "diagnosis", "y")
# Where such a column lies for nearly anybody, from what it means.
_USUAL = {
    "age": (0, 120),
    "bmi": (15, 45),
    "height_cm": (140, 200),
    "weight_kg": (40, 140),
    "heart_rate": (40, 150),
    "systolic": (80, 200),
    "diastolic": (40, 120),
    "temperature": (34, 42),
}


def is_identifier(name: str) -> bool:
    """Of somebody, or of a row."""
    return _IDENTIFIER.search(_words(name)) is not None


def is_amount(name: str) -> bool:
    """Of what is little for one and a million times as much for another."""
    return _AMOUNT.search(_words(name)) is not None


def is_target(name: str) -> bool:
    return name.casefold() in _TARGET


def usual_range(name: str) -> tuple[int, int] | None:
    return _USUAL.get(re.sub(r"[^a-z]+", "_", name.casefold()).strip("_"))


def _words(name: str) -> str:
    """insuredSum and insured_sum as insured sum."""
    return re.sub(r"([a-z])([A-Z])", r"\1 \2", name).casefold().replace("_", " ")

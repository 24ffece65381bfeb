"""Numbers and agents as a reader wants them written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from hearsay.privacy.certificate import show, who

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def quantity(value: float, digits: int = 4) -> str:
    """Four significant digits, with separators;
    a power of ten where zeros would have to be counted.
    """
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
    if value == 0:
        return "0"
    value = float(f"{value:.{digits - 1}e}")
    size = math.floor(math.log10(abs(value)))
    if -4 <= size < 6:
        places = max(0, digits - 1 - size)
        return _trimmed(f"{value:,.{places}f}")
    lead = _trimmed(f"{value / 10.0**size:.{digits - 1}f}")
    return power_of_ten(size) if lead == "1" else f"{lead} × {power_of_ten(size)}"


def power_of_ten(exponent: int) -> str:
    return f"10{str(exponent).translate(_RAISED)}"


def spread(mean: float, deviation: float, seeds: int, percent: bool = False) -> str:
    """mean ± standard deviation, both to the second digit of the deviation;
    the mean alone for a single seed.
    """
    unit = " %" if percent else ""
    mean, deviation = (100 * mean, 100 * deviation) if percent else (mean, deviation)
    if seeds == 1 or not math.isfinite(mean) or not math.isfinite(deviation):
        return quantity(mean, 3) + unit
    if deviation == 0 or not 1e-4 <= deviation < 1e5:
        return f"{quantity(mean, 3)} ± {quantity(deviation, 2)}{unit}"
    places = max(0, 1 - math.floor(math.log10(deviation)))
    places = min(places, 1) if percent else places
    return f"{mean:,.{places}f} ± {deviation:,.{places}f}{unit}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def instant(seconds: float) -> str:
    """Seconds since 1970, as a date and a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def size(count: float) -> str:
    """Bytes, in thousands of thousands."""
    for power, unit in enumerate(("bytes", "kB", "MB", "GB", "TB", "PB")):
        if count < 1000 ** (power + 1) or unit == "PB":
            break
    return f"{quantity(count / 1000**power, 3)} {unit}"


def count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def between(values: np.ndarray) -> str:
    """One number, or the two ends of a range."""
    low, high = quantity(float(values.min())), quantity(float(values.max()))
    return low if low == high else f"{low} to {high}"


def largest(budgets: Sequence[float] | np.ndarray, names: Sequence[str] = ()) -> tuple[str, str]:
    """The largest budget as it is printed, and the agents for whom the same is printed."""
    values, place = np.unique(np.asarray(budgets, float), return_inverse=True)
    top = show(float(values[-1]))
    same = np.array([show(float(value)) == top for value in values])
    return top, who(np.flatnonzero(same[place.ravel()]), len(budgets), names)


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text

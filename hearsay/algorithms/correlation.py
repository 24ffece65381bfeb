"""What algorithms share whose noise is correlated over time: which factorization they ask for, and
what may change from round to round.

The factorizations are in mechanisms/factorized/kinds.py, their noise streams in
mechanisms/factorized/stream.py, what they cost in privacy/factorized.py.
"""

from __future__ import annotations

from typing import Any

from hearsay import _validate as require
from hearsay.mechanisms.factorized.kinds import FACTORIZATIONS, Factorization, factorization
from hearsay.schedules import Constant

# How many diagonals or buffers there are, unless given.
_WIDTHS = {"banded": 16, "blt": 4}


def planned(kind: str, horizon: int, width: int | None) -> Factorization:
    """The factorization for a run of that many rounds.

    Args:
      kind: one of FACTORIZATIONS.
      horizon: the rounds that the noise is planned for.
      width: the bands of "banded" (16) or the buffers of "blt" (4), unless given.

    Example:
      >>> planned("banded", 10, None)
      Banded(rounds=10, bands=10, objective='max', diagonals=None)
    """
    width = width or _WIDTHS.get(kind)
    if kind == "banded":
        assert width is not None
        return factorization(kind, horizon, bands=min(horizon, width))
    return factorization(kind, horizon, **({"buffers": width} if kind == "blt" else {}))


def require_planned(name: str, kind: str, width: int | None) -> None:
    """Refuse a factorization that there is not, or a width of one that has none.

    Args:
      name: of the option that holds the kind.
    """
    require.one_of(name, kind, FACTORIZATIONS)
    if width is not None and kind not in _WIDTHS:
        require.fail("width", f"left out for {kind}: only banded and blt have one", width)


def require_constant(**laws: Any) -> None:
    """Refuse a schedule, or one of several, that is not a constant."""
    for name, law in laws.items():
        for one in law if isinstance(law, tuple) else (law,):
            if not isinstance(one, Constant):
                require.fail(
                    name, "a constant: the factorization shapes the noise over time", str(one)
                )

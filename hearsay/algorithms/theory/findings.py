"""One finding: a condition of a paper, whether it holds, and by how much."""

from __future__ import annotations

from hearsay import _validate as require
from hearsay.base import Finding


@require.plain_arguments
def below(name: str, left: float, right: float, text: str, strict: bool = True) -> Finding:
    """left < right (or <=), with the margin right - left."""
    holds = left < right if strict else left <= right
    return Finding(
        name, holds, f"{text}: needs {left:.4g} {'<' if strict else '<='} {right:.4g}", right - left
    )

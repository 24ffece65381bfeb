"""Double precision for as long as an audit computes: ratios near 1 need it, and so do draws
that are to be told apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import jax


@contextmanager
def double_precision() -> Iterator[None]:
    """Everything within is computed in float64; afterwards jax is set as it was.

    In all threads: jax calls models of other libraries from threads of its own.
    """
    if _double():
        yield
        return
    with ThreadPoolExecutor(1) as other:  # a new thread has what holds for all
        before = other.submit(_double).result()
    jax.config.update("jax_enable_x64", True)
    try:
        with jax.enable_x64(True):
            yield
    finally:
        jax.config.update("jax_enable_x64", before)


def _double() -> bool:
    return jax.config.jax_enable_x64  # type: ignore[attr-defined]

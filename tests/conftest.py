"""Tests run in float64, with the papers' data found beside the repository when it is there."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


_tests = itertools.count(1)


@pytest.fixture(autouse=True)
def bounded_memory():
    """Compiled programs are kept for as long as the process lives; a test suite makes thousands."""
    yield
    if next(_tests) % 100 == 0:
        jax.clear_caches()


@pytest.fixture(scope="session", autouse=True)
def data_folder() -> None:
    if "HEARSAY_DATA" not in os.environ and SHARED.is_dir():
        os.environ["HEARSAY_DATA"] = str(SHARED)

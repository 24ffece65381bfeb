"""Tests run in float64, with the papers' data found beside the repository when it is there.

Most of a suite's time is compilation of small programs that run once, so they are compiled
without optimisation here, and by the emitters that take half as long; `make test-slow` and
`make audit` compile as a user's runs do. Agents in processes of their own inherit all of it.
"""

from __future__ import annotations

import itertools
import os
import signal
from importlib.metadata import version
from pathlib import Path

# Before jax reads them. The flag only with releases that are known to have it: one without it would
# stop at once.
if os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") == "1" and (
    version("jaxlib").startswith("0.10.")
):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

import jax
import pytest

from tests.spared import left_to_the_slow

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

# What a shell starts in its background ignores interrupts, and so does what that starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            found.setdefault(item.nodeid.split("[")[0], []).append(item)
    for item in left_to_the_slow(found):
        item.add_marker("slow")


_tests = itertools.count(1)


MAPS = Path("/proc/self/maps")  # where the system has one


@pytest.fixture(autouse=True)
def bounded_memory():
    """Compiled programs are kept for as long as the process lives; a test suite makes thousands.

    Each takes a few of the 65,530 mappings that Linux gives a process, and the compiler dies of a
    segmentation fault when there are no more.
    """
    yield
    done = next(_tests)
    crowded = done % 5 == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > 15_000
    if crowded or done % 100 == 0:
        jax.clear_caches()


@pytest.fixture(scope="session", autouse=True)
def data_folder() -> None:
    if "HEARSAY_DATA" not in os.environ and SHARED.is_dir():
        os.environ["HEARSAY_DATA"] = str(SHARED)

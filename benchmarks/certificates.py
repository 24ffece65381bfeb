"""Certificates of very many agents, in one run: python -m benchmarks.certificates [AGENTS]

A ring of AGENTS (a million unless given) who hold 50 to 59 records, in any order: ten kinds. CPU
time of one process, and the most memory that it has had.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import hearsay as hs
from hearsay.privacy import Certificate
from hearsay.privacy.verification import verify


def timed(what: str, compute: Callable[[], Any]) -> Any:
    """What comes out, with a line about what it took."""
    begun = time.process_time()
    found = compute()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"{what:>10}  {time.process_time() - begun:6.2f} s  {most:6.0f} MB", flush=True)
    return found


def main(agents: int) -> None:
    graph = timed("graph", lambda: hs.graphs.ring(agents))
    held = 50 + np.random.default_rng(0).integers(0, 10, agents)
    task = replace(hs.problems.ridge(agents=2, records=50).task, counts=held)
    algorithm = hs.ldp_online(noise=60.0)
    found = timed("certify", lambda: hs.certify(algorithm, task, graph, 100))
    print(f"{found.budgets!r}")
    timed("print", lambda: str(found))
    text = timed("write", found.to_json)
    print(f"{len(text):,} characters")
    again = timed("read", lambda: Certificate.from_json(text))
    verdict = timed("verify", lambda: verify(again))
    timed("calibrate", lambda: hs.calibrate(algorithm, task, graph, 100, 1.0))
    if not verdict.holds or again != found:
        raise SystemExit(f"the certificate does not hold: {verdict.wrong[:3]}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)

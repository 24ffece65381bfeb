"""The experiments of papers P1 to P4 (docs/papers.md says which papers these are).

What an experiment runs is data (`data`, read by settings.py), one runner takes it from there
(runner.py), and a file per experiment measures what is its own.

EXPERIMENTS maps the name on the command line to a function.

Those on convex problems take a share of the paper's iterations as their scale, those with neural
networks (NEURAL) "small", "paper" or a share of the small one.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hearsay import _validate as require
from hearsay.experiments import settings
from hearsay.experiments.runner import reproduce

EXPERIMENTS: dict[str, Callable[..., Path]] = {
    name: partial(reproduce, name) for name in settings.names()
}
NEURAL = tuple(name for name in EXPERIMENTS if "scales" in settings.read(name).keys)


def scale_and_seeds(
    name: str, scale: str | float | None = None, seeds: int | None = None
) -> dict[str, Any]:
    """What `reproduce` is called with: the scale in the experiment's own terms,
    and as many seeds as that scale can afford.
    """
    network = require.one_of("experiment", name, EXPERIMENTS) in NEURAL
    found: str | float = ("small" if network else 1.0) if scale is None else scale
    if found not in ("small", "paper"):
        rule = "small, paper, or a number above 0 and at most 1"
        try:
            found = float(found)
        except ValueError:
            require.fail("scale", rule, scale)
        if not 0 < found <= 1:
            require.fail("scale", rule, scale)
    elif not network:
        found = {"small": 0.1, "paper": 1.0}[str(found)]
    usual = 10 if not network else 3 if found == "paper" else 1
    return {"scale": found, "seeds": usual if seeds is None else require.count("seeds", seeds)}

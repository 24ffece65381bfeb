"""The papers' experiments: settings and calls only.

EXPERIMENTS maps the name on the command line to a function.

Those on convex problems take a share of the paper's iterations as their scale, those with neural
networks (NETWORKS) "small", "paper" or a share of the small one.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hearsay import _validate as require
from hearsay.experiments import (
    p1_images,
    p1_mushrooms,
    p2_convex,
    p2_images,
    p3_estimation,
    p3_mnist,
    p4_logistic,
    p4_mnist,
)

EXPERIMENTS: dict[str, Callable[..., Path]] = {
    "p1-mushrooms": p1_mushrooms.reproduce,
    "p1-mnist": p1_images.reproduce,
    "p1-cifar": p1_images.reproduce_cifar,
    "p1-table2": p1_images.reproduce_table_2,
    "p2-convex": p2_convex.reproduce,
    "p2-mnist": p2_images.reproduce,
    "p2-cifar": p2_images.reproduce_cifar,
    "p3-estimation": p3_estimation.reproduce,
    "p3-mnist": p3_mnist.reproduce,
    "p4-logistic": p4_logistic.reproduce,
    "p4-mnist": p4_mnist.reproduce,
}
NETWORKS = ("p1-mnist", "p1-cifar", "p1-table2", "p2-mnist", "p2-cifar", "p3-mnist", "p4-mnist")


def scale_and_seeds(
    name: str, scale: str | float | None = None, seeds: int | None = None
) -> dict[str, Any]:
    """What `reproduce` is called with: the scale in the experiment's own terms,
    and as many seeds as that scale can afford.
    """
    network = require.one_of("experiment", name, EXPERIMENTS) in NETWORKS
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

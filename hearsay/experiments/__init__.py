"""The papers' experiments: settings and calls only. EXPERIMENTS maps the name on the command line to a function."""

from collections.abc import Callable
from pathlib import Path

from hearsay.experiments import p1_mushrooms, p2_convex, p3_estimation, p4_logistic

EXPERIMENTS: dict[str, Callable[..., Path]] = {
    "p1-mushrooms": p1_mushrooms.reproduce,
    "p2-convex": p2_convex.reproduce,
    "p3-estimation": p3_estimation.reproduce,
    "p4-logistic": p4_logistic.reproduce,
}

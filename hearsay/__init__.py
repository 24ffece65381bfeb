"""hearsay: differentially private learning on networks, with a privacy certificate that is true.

Algorithms are built by the functions and classes of algorithms/registry.py, under their names with
underscores: hearsay.ldp_online(...), hearsay.dola(...).
"""

from hearsay import _interrupts  # noqa: F401  (before all that takes its time)

# isort: split
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hearsay import graphs, problems
from hearsay._version import VERSION as __version__
from hearsay.algorithms import REGISTRY
from hearsay.algorithms.gradient_tracking import scheme_s1, scheme_s2
from hearsay.algorithms.outside import algorithm
from hearsay.algorithms.registry import VERBS
from hearsay.base import Algorithm
from hearsay.certification import budget_by_horizon, calibrate, certify
from hearsay.graphs.secrets import Secrets
from hearsay.privacy.adding import add_up
from hearsay.privacy.certificate import Certificate
from hearsay.problems.sampling.samplers import Cyclic, Fresh, History, Poisson, Resample, Subset
from hearsay.release.folder import load_model
from hearsay.release.model import ReleasedModel
from hearsay.schedules import Constant, Geometric, PowerLaw, SampleSize
from hearsay.simulation.costs import Costs
from hearsay.simulation.faults import Faults
from hearsay.simulation.result import Run
from hearsay.simulation.saved import SavedRun, load_run
from hearsay.simulation.simulating import simulate
from hearsay.tables import Category, Ignored, Number, Schema

globals().update({VERBS[name]: build for name, build in REGISTRY.items()})

if TYPE_CHECKING:
    from hearsay.audit.checking import check_algorithm
    from hearsay.estimators import NetworkClassifier, NetworkRegressor, TableEncoder
    from hearsay.tradeoff import Rehearsal, frontier, rehearse

    def __getattr__(name: str) -> Callable[..., Algorithm]: ...

else:

    def __getattr__(name: str) -> Any:
        """Auditing, rehearsals, the frontier and what rests on scikit-learn are imported when they
        are asked for.
        """
        if name == "check_algorithm":
            from hearsay.audit.checking import check_algorithm as found
        elif name in ("frontier", "rehearse", "Rehearsal"):
            from hearsay import tradeoff

            found = getattr(tradeoff, name)
        elif name in ("NetworkClassifier", "NetworkRegressor", "TableEncoder"):
            from hearsay import estimators

            found = getattr(estimators, name)
        else:
            # With both, Python names the nearest one that there is.
            absent = f"module 'hearsay' has no attribute {name!r}"
            raise AttributeError(absent, name=name, obj=sys.modules[__name__])
        return found


__all__ = [
    "REGISTRY",
    "Algorithm",
    "Category",
    "Certificate",
    "Constant",
    "Costs",
    "Cyclic",
    "Faults",
    "Fresh",
    "Geometric",
    "History",
    "Ignored",
    "NetworkClassifier",
    "NetworkRegressor",
    "Number",
    "Poisson",
    "Secrets",
    "PowerLaw",
    "Rehearsal",
    "ReleasedModel",
    "Resample",
    "Run",
    "SavedRun",
    "Schema",
    "SampleSize",
    "Subset",
    "TableEncoder",
    "__version__",
    "add_up",
    "algorithm",
    "calibrate",
    "certify",
    "check_algorithm",
    "frontier",
    "graphs",
    "load_model",
    "load_run",
    "budget_by_horizon",
    "problems",
    "rehearse",
    "scheme_s1",
    "scheme_s2",
    "simulate",
    *VERBS.values(),
]


def __dir__() -> list[str]:
    """What tab completion offers: also what is imported when it is asked for."""
    return sorted({*globals(), *__all__} - {"Any", "Callable", "TYPE_CHECKING", "VERBS"})

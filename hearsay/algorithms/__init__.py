"""Every algorithm: builders by name in REGISTRY, classes for annotations and isinstance."""

from __future__ import annotations

from collections.abc import Callable

from hearsay.algorithms import registry
from hearsay.algorithms.asynchronous_gossip import AsynchronousGossip
from hearsay.algorithms.baselines.adp2sgd import Adp2sgd
from hearsay.algorithms.baselines.dsgd import Dsgd
from hearsay.algorithms.baselines.pdop import Pdop
from hearsay.algorithms.baselines.quantized_dsgd import QuantizedDsgd
from hearsay.algorithms.baselines.sdm_dsgd import SdmDsgd
from hearsay.algorithms.baselines.ternary_dsgd import TernaryDsgd
from hearsay.algorithms.baselines.weighted_erm import WeightedErm
from hearsay.algorithms.correlated_federated import CorrelatedFederated
from hearsay.algorithms.gradient_perturbation import GradientPerturbation
from hearsay.algorithms.gradient_tracking import GradientTracking
from hearsay.algorithms.ldp_online import LdpOnline
from hearsay.algorithms.output_perturbation import OutputPerturbation
from hearsay.base import Algorithm

REGISTRY: dict[str, Callable[..., Algorithm]] = {
    name: registry.load(name) for name in registry.ENTRIES
}

__all__ = [
    "REGISTRY",
    "Adp2sgd",
    "AsynchronousGossip",
    "CorrelatedFederated",
    "Dsgd",
    "GradientPerturbation",
    "GradientTracking",
    "LdpOnline",
    "OutputPerturbation",
    "Pdop",
    "QuantizedDsgd",
    "SdmDsgd",
    "TernaryDsgd",
    "WeightedErm",
]

"""Every algorithm, by the name that the command line uses."""

from __future__ import annotations

from hearsay.algorithms.baselines import (
    Adp2sgd,
    Dola,
    Dsgd,
    Pdop,
    QuantizedDsgd,
    SdmDsgd,
    TernaryDsgd,
    WeightedErm,
)
from hearsay.algorithms.correlated_federated import (
    CorrelatedFederated,
    FederatedIndependent,
    FederatedNoiseless,
)
from hearsay.algorithms.gradient_tracking import GradientTracking, scheme_s1, scheme_s2
from hearsay.algorithms.ldp_online import LdpOnline
from hearsay.algorithms.sample_sizes import GradientPerturbation, OutputPerturbation
from hearsay.base import Algorithm

_ALL: tuple[type[Algorithm], ...] = (
    LdpOnline, GradientTracking, OutputPerturbation, GradientPerturbation, CorrelatedFederated,
    Dsgd, Dola, Pdop, Adp2sgd, SdmDsgd, TernaryDsgd, QuantizedDsgd, WeightedErm,
    FederatedIndependent, FederatedNoiseless,
)  # fmt: skip
REGISTRY: dict[str, type[Algorithm]] = {cls.name: cls for cls in _ALL}

# In a script an algorithm is a verb: hearsay.dsgd(step=...).
ldp_online, gradient_tracking = LdpOnline, GradientTracking
correlated_federated, federated_independent, federated_noiseless = (
    CorrelatedFederated,
    FederatedIndependent,
    FederatedNoiseless,
)
output_perturbation, gradient_perturbation = OutputPerturbation, GradientPerturbation
dsgd, dola, pdop, adp2sgd, sdm_dsgd = Dsgd, Dola, Pdop, Adp2sgd, SdmDsgd
ternary_dsgd, quantized_dsgd, weighted_erm = TernaryDsgd, QuantizedDsgd, WeightedErm

__all__ = [
    "REGISTRY",
    "Adp2sgd",
    "CorrelatedFederated",
    "Dola",
    "Dsgd",
    "FederatedIndependent",
    "FederatedNoiseless",
    "GradientPerturbation",
    "GradientTracking",
    "LdpOnline",
    "OutputPerturbation",
    "Pdop",
    "QuantizedDsgd",
    "SdmDsgd",
    "TernaryDsgd",
    "WeightedErm",
    "adp2sgd",
    "correlated_federated",
    "dola",
    "dsgd",
    "federated_independent",
    "federated_noiseless",
    "gradient_perturbation",
    "gradient_tracking",
    "ldp_online",
    "output_perturbation",
    "pdop",
    "quantized_dsgd",
    "scheme_s1",
    "scheme_s2",
    "sdm_dsgd",
    "ternary_dsgd",
    "weighted_erm",
]

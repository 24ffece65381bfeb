"""Every algorithm, by the name that the command line uses."""

from __future__ import annotations

from hearsay.algorithms.baselines import Adp2sgd, Dola, Dsgd, Pdop, SdmDsgd
from hearsay.algorithms.gradient_tracking import GradientTracking, scheme_s1, scheme_s2
from hearsay.algorithms.ldp_online import LdpOnline
from hearsay.algorithms.sample_sizes import GradientPerturbation, OutputPerturbation
from hearsay.base import Algorithm

REGISTRY: dict[str, type[Algorithm]] = {
    cls.name: cls
    for cls in (
        LdpOnline,
        GradientTracking,
        OutputPerturbation,
        GradientPerturbation,
        Dsgd,
        Dola,
        Pdop,
        Adp2sgd,
        SdmDsgd,
    )
}

# In a script an algorithm is a verb: hearsay.dsgd(step=...).
ldp_online, gradient_tracking = LdpOnline, GradientTracking
output_perturbation, gradient_perturbation = OutputPerturbation, GradientPerturbation
dsgd, dola, pdop, adp2sgd, sdm_dsgd = Dsgd, Dola, Pdop, Adp2sgd, SdmDsgd

__all__ = [
    "REGISTRY",
    "Adp2sgd",
    "Dola",
    "Dsgd",
    "GradientPerturbation",
    "GradientTracking",
    "LdpOnline",
    "OutputPerturbation",
    "Pdop",
    "SdmDsgd",
    "adp2sgd",
    "dola",
    "dsgd",
    "gradient_perturbation",
    "gradient_tracking",
    "ldp_online",
    "output_perturbation",
    "pdop",
    "scheme_s1",
    "scheme_s2",
    "sdm_dsgd",
]

"""hearsay: differentially private learning on networks, with a privacy certificate that is true."""

from hearsay import graphs, problems
from hearsay._version import VERSION as __version__
from hearsay.algorithms import (
    REGISTRY,
    Adp2sgd,
    Dola,
    Dsgd,
    GradientPerturbation,
    LdpOnline,
    OutputPerturbation,
    Pdop,
    SdmDsgd,
    adp2sgd,
    dola,
    dsgd,
    gradient_perturbation,
    ldp_online,
    output_perturbation,
    pdop,
    sdm_dsgd,
)
from hearsay.certify import calibrate, certify
from hearsay.privacy.certificate import Certificate
from hearsay.problems.sampling import Cyclic, Fresh, History, Resample, Subset
from hearsay.run import Run
from hearsay.schedules import Constant, Geometric, PowerLaw, SampleSize
from hearsay.simulate import simulate

__all__ = [
    "REGISTRY",
    "Adp2sgd",
    "Certificate",
    "Constant",
    "Cyclic",
    "Dola",
    "Dsgd",
    "Fresh",
    "Geometric",
    "GradientPerturbation",
    "History",
    "LdpOnline",
    "OutputPerturbation",
    "Pdop",
    "PowerLaw",
    "Resample",
    "Run",
    "SampleSize",
    "SdmDsgd",
    "Subset",
    "__version__",
    "adp2sgd",
    "calibrate",
    "certify",
    "dola",
    "dsgd",
    "gradient_perturbation",
    "graphs",
    "ldp_online",
    "output_perturbation",
    "pdop",
    "problems",
    "sdm_dsgd",
    "simulate",
]

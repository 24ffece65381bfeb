"""hearsay: differentially private learning on networks, with a privacy certificate that is true."""

from hearsay import graphs, problems
from hearsay._version import VERSION as __version__
from hearsay.algorithms import (
    REGISTRY,
    Adp2sgd,
    Dola,
    Dsgd,
    GradientPerturbation,
    GradientTracking,
    LdpOnline,
    OutputPerturbation,
    Pdop,
    SdmDsgd,
    adp2sgd,
    dola,
    dsgd,
    gradient_perturbation,
    gradient_tracking,
    ldp_online,
    output_perturbation,
    pdop,
    scheme_s1,
    scheme_s2,
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
    "GradientTracking",
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
    "gradient_tracking",
    "graphs",
    "ldp_online",
    "output_perturbation",
    "pdop",
    "problems",
    "scheme_s1",
    "scheme_s2",
    "sdm_dsgd",
    "simulate",
]

"""hearsay: differentially private learning on networks, with a privacy certificate that is true."""

from hearsay import graphs, problems
from hearsay._version import VERSION as __version__
from hearsay.algorithms import REGISTRY, Dola, Dsgd, LdpOnline, Pdop, dola, dsgd, ldp_online, pdop
from hearsay.certify import calibrate, certify
from hearsay.privacy.certificate import Certificate
from hearsay.problems.sampling import Cyclic, Fresh, History, Resample
from hearsay.run import Run
from hearsay.schedules import Constant, Geometric, PowerLaw
from hearsay.simulate import simulate

__all__ = [
    "REGISTRY",
    "Certificate",
    "Constant",
    "Cyclic",
    "Dola",
    "Dsgd",
    "Fresh",
    "Geometric",
    "History",
    "LdpOnline",
    "Pdop",
    "PowerLaw",
    "Resample",
    "Run",
    "__version__",
    "calibrate",
    "certify",
    "dola",
    "dsgd",
    "graphs",
    "ldp_online",
    "pdop",
    "problems",
    "simulate",
]

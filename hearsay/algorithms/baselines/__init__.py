"""The methods that the papers compare with."""

from hearsay.algorithms.baselines.adp2sgd import Adp2sgd
from hearsay.algorithms.baselines.dsgd import Dola, Dsgd
from hearsay.algorithms.baselines.pdop import Pdop
from hearsay.algorithms.baselines.sdm_dsgd import SdmDsgd

__all__ = ["Adp2sgd", "Dola", "Dsgd", "Pdop", "SdmDsgd"]

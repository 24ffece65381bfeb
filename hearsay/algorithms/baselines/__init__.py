"""The methods that the papers compare with."""

from hearsay.algorithms.baselines.adp2sgd import Adp2sgd
from hearsay.algorithms.baselines.dsgd import Dola, Dsgd
from hearsay.algorithms.baselines.pdop import Pdop
from hearsay.algorithms.baselines.quantized_dsgd import QuantizedDsgd
from hearsay.algorithms.baselines.sdm_dsgd import SdmDsgd
from hearsay.algorithms.baselines.ternary_dsgd import TernaryDsgd
from hearsay.algorithms.baselines.weighted_erm import WeightedErm

__all__ = [
    "Adp2sgd",
    "Dola",
    "Dsgd",
    "Pdop",
    "QuantizedDsgd",
    "SdmDsgd",
    "TernaryDsgd",
    "WeightedErm",
]

"""The methods that the papers compare with."""

from hearsay.algorithms.baselines.dsgd import Dola, Dsgd
from hearsay.algorithms.baselines.pdop import Pdop

__all__ = ["Dola", "Dsgd", "Pdop"]

"""Noise: what is added to a value before it leaves an agent, and all that follows from its law.

mechanism.py says what a law knows of itself; laplace.py, gaussian.py and ternary.py are the laws.
"""

from hearsay.mechanisms.gaussian import Gaussian
from hearsay.mechanisms.laplace import Laplace
from hearsay.mechanisms.mechanism import Mechanism, Reading
from hearsay.mechanisms.ternary import Ternary

MECHANISMS: dict[str, Mechanism] = {law.name: law for law in (Laplace(), Gaussian(), Ternary())}

__all__ = ["MECHANISMS", "Gaussian", "Laplace", "Mechanism", "Reading", "Ternary"]

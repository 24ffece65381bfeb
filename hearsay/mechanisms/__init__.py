"""Noise: what is added to a value before it leaves an agent.

A mechanism splits the work in two, so that the costly half can be done for many steps at once:
`draw` turns a key into randomness that does not depend on the value or on the scale, `add` turns
value, draw and scale into what is sent.
"""

from hearsay.mechanisms.gaussian import Gaussian
from hearsay.mechanisms.laplace import Laplace
from hearsay.mechanisms.ternary import Ternary

MECHANISMS: dict[str, Laplace | Gaussian | Ternary] = {
    "laplace": Laplace(),
    "gaussian": Gaussian(),
    "ternary": Ternary(),
}

__all__ = ["MECHANISMS", "Gaussian", "Laplace", "Ternary"]

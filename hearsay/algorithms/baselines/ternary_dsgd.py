"""Decentralized SGD whose states travel through a stochastic ternary quantizer (Wang and
Basar 2023).

    x_i(k+1) = Proj[ sum_j a_ij Q(x_j(k)) - alpha_k g_i(k) ],
        Q(x) in {-r, 0, r} per coordinate, with mean x

It is DSGD (dsgd.py) with another mechanism: the same recursion, and messages that are (0,
delta)-private, delta = sum_k sqrt(d) Phi(k) / r_k (mechanisms/ternary.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hearsay.algorithms.baselines.dsgd import Dsgd
from hearsay.base import Noise
from hearsay.schedules import Constant


@dataclass(frozen=True, kw_only=True)
class TernaryDsgd(Dsgd):
    """DSGD with ternary messages.

    noise: the threshold r, which must exceed the models' coordinates for the
    messages to be unbiased.
    """

    name: ClassVar[str] = "ternary-dsgd"

    noise: Noise = Constant(5.0)
    mechanism: str = "ternary"

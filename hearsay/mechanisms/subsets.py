"""What a message of a batch loses that is drawn without replacement: m of N records, q = m / N.

Given the messages so far, a message is the noise around the value of its batch, which is within s
of that of every batch that differs in one record, whatever the two records are (empty ones too).
Let P and Q be the laws of the message for two data sets that differ in one record, P1 and Q1 those
given that it is in the batch, and W the law given that it is not, which is the same for both:

    P = (1 - q) W + q P1,    Q = (1 - q) W + q Q1.

**The pair N(s) against N(0), met with probability q, dominates**: for a >= 1

    H_a(P | Q) <= h(a) = H_a((1 - q) N(0) + q N(s) | N(0)),    and for a < 1 <= 1 - a + a h(1 / a).

*Proof.* Let a = 1 + q (c - 1) >= 1 and b = a / c <= 1. Then H_a(P | Q) = q H_c(P1 | (1 - b) W +
b Q1) (Balle, Barthe and Gaboardi 2018, Theorem 2), at most q times the larger one of H_c(P1 | W)
and H_c(P1 | Q1), as H_c is convex in its second law. P1 is the mean, over the m - 1 other records
of a batch, of the noise around the value with the record; Q1 the same with the other record; and W
the same with one more of the records that are there, drawn at random. So both are means of pairs
of laws around values that are at most s apart, and H_c is convex in both together: each is at most
H_c(N(s) | N(0)), one number that moves by s (convert.py). And q H_c(N(s) | N(0)) = h(a), as (1 - q)
N(0) + q N(s) - a N(0) = q (N(s) - c N(0)). For a < 1, H_a(P | Q) = 1 - a + a H_(1/a)(Q | P), where
the same holds with P and Q exchanged. (Zhu, Dong and Wang 2022, Theorem 11, have it as a statement
about mechanisms.)

That bound is the profile of a pair of laws: it is convex on either side of 1, and at 1, as its
slope from the right, -N(0)(x > s / 2) = -(1 - TV) / 2, is at least the one from the left, h(1) - 1
minus that, h(1) = q TV. So compositions of it dominate those of messages that are chosen by looking
at earlier ones (Theorem 10 there), in both directions: the pair is its own mirror image. A larger
s, rounded up, allows more.

References: Balle, Barthe, Gaboardi, Privacy amplification by subsampling, NeurIPS 2018. Zhu, Dong,
Wang, Optimal accounting of differential privacy via characteristic function, AISTATS 2022.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hearsay.mechanisms.opposed import BEYOND, connected, loss, opposed_deltas

if TYPE_CHECKING:
    from hearsay.mechanisms.mechanism import Mechanism


def subset_losses(law: Mechanism, shift: float, rate: float, cell: float) -> Any:
    """The privacy loss distribution of one message, on a grid of that width that is never below
    the truth.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    tail = float(law.standard.isf(BEYOND))
    widest = max(math.ceil(loss(law, shift, 0.0, rate, shift + tail) / cell), 1)
    deltas = opposed_deltas(law, shift, 0.0, rate, np.arange(widest + 1) * cell)
    return pld.PrivacyLossDistribution(connected(deltas, deltas, widest, cell))

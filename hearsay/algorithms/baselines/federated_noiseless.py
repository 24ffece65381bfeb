"""Online federated learning (correlated_federated.py) without noise (Mitra et al. 2021): no
privacy, and no option to add any.
"""

from __future__ import annotations

from hearsay import _validate as require
from hearsay.algorithms.correlated_federated import CorrelatedFederated
from hearsay.base import Noise
from hearsay.problems.sampling.samplers import Fresh, Sampling
from hearsay.schedules import Constant, SampleSize, Schedule


@require.known_arguments
def federated_noiseless(
    *,
    step: Schedule = Constant(0.1),
    server: float = 1.0,
    horizon: int = 1000,
    noise: Noise | None = None,
    mechanism: str = "gaussian",
    sampling: Sampling = Fresh(SampleSize(Constant(5.0))),
    average: bool = False,
) -> CorrelatedFederated:
    """Online federated learning without noise.

    Args:
      step: the local rate eta (a constant).
      server: eta_g.
      horizon: the rounds that are planned.
      noise: none or 0; federated_independent adds noise.
      mechanism: "gaussian".
      sampling: Fresh(tau), the records of a round in order, or Cyclic(tau), Subset(tau).
      average: read out a running average of the models.

    Example:
      >>> import hearsay as hs
      >>> hs.federated_noiseless(horizon=50).noise
      Constant(value=0.0)
    """
    return CorrelatedFederated(
        name="federated-noiseless",
        factorization="identity",
        step=step,
        server=server,
        horizon=horizon,
        noise=Constant(0.0) if noise is None else noise,
        mechanism=mechanism,
        sampling=sampling,
        average=average,
    )

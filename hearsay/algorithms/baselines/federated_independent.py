"""Online federated learning (correlated_federated.py) with independent noise in every round, as Liu
et al. 2023 add it.
"""

from __future__ import annotations

from hearsay import _validate as require
from hearsay.algorithms.correlated_federated import CorrelatedFederated
from hearsay.base import Noise
from hearsay.graphs.secrets import Secrets
from hearsay.problems.sampling.samplers import Fresh, Sampling
from hearsay.schedules import Constant, SampleSize, Schedule


@require.known_arguments
def federated_independent(
    *,
    step: Schedule = Constant(0.1),
    server: float = 1.0,
    horizon: int = 1000,
    noise: Noise = Constant(1.0),
    mechanism: str = "gaussian",
    sampling: Sampling = Fresh(SampleSize(Constant(5.0))),
    average: bool = False,
    secrets: Secrets | None = None,
) -> CorrelatedFederated:
    """Online federated learning with independent noise.

    Args:
      step: the local rate eta (a constant).
      server: eta_g.
      horizon: the rounds that are planned.
      noise: the standard deviation V, one constant or one per learner.
      mechanism: "gaussian".
      sampling: Fresh(tau), the records of a round in order, or Cyclic(tau), Subset(tau).
      average: read out a running average of the models.
      secrets: noise that pairs of agents share and that cancels in the sum (Gaussian noise only).

    Example:
      >>> import hearsay as hs
      >>> hs.federated_independent(horizon=50).factorization
      'identity'
    """
    return CorrelatedFederated(
        name="federated-independent",
        factorization="identity",
        step=step,
        server=server,
        horizon=horizon,
        noise=noise,
        mechanism=mechanism,
        sampling=sampling,
        average=average,
        secrets=secrets,
    )

"""DOLA (Li et al. 2018): decentralized SGD (dsgd.py) with steps like 1/sqrt(k) and noise in
proportion to the step, that is a constant budget per step. The projection is onto the problem's
domain.
"""

from __future__ import annotations

from hearsay import _validate as require
from hearsay.algorithms.baselines.dsgd import Dsgd
from hearsay.base import Noise
from hearsay.graphs.secrets import Secrets
from hearsay.problems.sampling.samplers import Cyclic, Sampling
from hearsay.schedules import PowerLaw, Schedule


@require.known_arguments
def dola(
    *,
    step: Schedule = PowerLaw(0.5, -0.5),
    noise: Noise = PowerLaw(1.0, -0.5),
    mechanism: str = "laplace",
    sampling: Sampling = Cyclic(),
    average: bool = False,
    secrets: Secrets | None = None,
) -> Dsgd:
    """DSGD with DOLA's schedules.

    Args:
      step: alpha_k.
      noise: the scale of the noise, one schedule or one per agent.
      mechanism: "laplace" or "gaussian".
      sampling: which records a step uses.
      average: read out a running average of the models.
      secrets: noise that pairs of agents share and that cancels in the sum (Gaussian noise only).

    Example:
      >>> import hearsay as hs
      >>> hs.dola(step="0.2*(k+1)^-0.5").name
      'dola'
    """
    return Dsgd(
        name="dola",
        step=step,
        noise=noise,
        mechanism=mechanism,
        sampling=sampling,
        average=average,
        secrets=secrets,
    )

"""How an agent turns its stream of records into the gradient of a step, and what that says
about privacy.

A sampler answers two questions from one object, so that they cannot disagree: which records enter
the gradient of step k (`batch`), and how often one record may do so, with what weight (`pattern`,
`exposure`).

    History      all records that have arrived, each once (paper P1)
                 weight 1 / min(H + (k+1) N, held)
    Fresh        the next ones of the stream, never again; then it ends
                 1 / size
    Cyclic       the next ones of the local data set in its fixed order, round and round
                 1 / size
    Subset       drawn from the local data set without replacement, in secret, anew at every step
                 1 / size
    Poisson      each record of the local data set by its own secret coin, anew at every step
                 1 / (rate held), also where more or fewer were drawn
    Resample     drawn with replacement (paper P3's bootstrap)
                 up to 1: all draws may be the same record

`size` is the number of records per step: N = `per_step` of the problem's arrivals unless the
sampler has a schedule of its own, which may grow forever (paper P3). Sizes that pass an agent's
data set mean all of it, each record once; a fresh stream that cannot serve a step ends the run.

A batch is a small pytree with `gradient(params)`, the mean gradient plus the regulariser's (for
Poisson the sum over a public number). Batches that grow are worked through in blocks of a fixed
width, so that one compiled program serves every step and the memory is that of a block, whatever
the size.
"""

from __future__ import annotations

from hearsay.problems.sampling.batches import Batch, Records, Window
from hearsay.problems.sampling.history import History
from hearsay.problems.sampling.poisson import Poisson
from hearsay.problems.sampling.sampler import Arrivals, Coins, Sampling
from hearsay.problems.sampling.sized import Cyclic, Fresh, Resample, Sized, Subset

SAMPLERS: dict[str, type[Sampling]] = {
    "history": History,
    "fresh": Fresh,
    "cyclic": Cyclic,
    "subset": Subset,
    "poisson": Poisson,
    "resample": Resample,
}

__all__ = [
    "SAMPLERS",
    "Arrivals",
    "Batch",
    "Coins",
    "Cyclic",
    "Fresh",
    "History",
    "Poisson",
    "Records",
    "Resample",
    "Sampling",
    "Sized",
    "Subset",
    "Window",
]

"""Every algorithm by the name that certificates, configurations and the command line use: where
it is built, and what it is in one line.

An algorithm is added by one file and one line here. This file imports nothing, so that names can be
listed without the machinery that runs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """ "module:attribute" of a final class or of a function that builds one, and a summary."""

    place: str
    summary: str


_OWN, _BASELINES = "hearsay.algorithms", "hearsay.algorithms.baselines"
ENTRIES: dict[str, Entry] = {
    "ldp-online": Entry(
        f"{_OWN}.ldp_online:LdpOnline",
        "locally private online learning with full-history gradients (paper P1)",
    ),
    "gradient-tracking": Entry(
        f"{_OWN}.gradient_tracking:GradientTracking",
        "gradient tracking over directed graphs (paper P2)",
    ),
    "output-perturbation": Entry(
        f"{_OWN}.output_perturbation:OutputPerturbation",
        "growing sample sizes, noise on the models (paper P3)",
    ),
    "gradient-perturbation": Entry(
        f"{_OWN}.gradient_perturbation:GradientPerturbation",
        "growing sample sizes, noise on the gradients (paper P3)",
    ),
    "correlated-federated": Entry(
        f"{_OWN}.correlated_federated:CorrelatedFederated",
        "online federated learning with noise correlated over time (paper P4)",
    ),
    "asynchronous-gossip": Entry(
        f"{_OWN}.asynchronous_gossip:AsynchronousGossip",
        "one random edge wakes at a time, noise on the gradients",
    ),
    "dsgd": Entry(
        f"{_BASELINES}.dsgd:Dsgd", "decentralized SGD with noisy models (Pu et al. 2021)"
    ),
    "dola": Entry(
        f"{_BASELINES}.dola:dola",
        "decentralized SGD with a constant budget per step (Li et al. 2018)",
    ),
    "pdop": Entry(f"{_BASELINES}.pdop:Pdop", "geometric steps and noise (Huang et al. 2015)"),
    "adp2sgd": Entry(
        f"{_BASELINES}.adp2sgd:Adp2sgd",
        "asynchronous decentralized SGD with noisy gradients (Xu et al. 2022)",
    ),
    "sdm-dsgd": Entry(
        f"{_BASELINES}.sdm_dsgd:SdmDsgd",
        "sparse messages, Gaussian noise on the gradients (Ding et al. 2021)",
    ),
    "ternary-dsgd": Entry(
        f"{_BASELINES}.ternary_dsgd:TernaryDsgd",
        "decentralized SGD with ternary messages (Wang and Basar 2023)",
    ),
    "quantized-dsgd": Entry(
        f"{_BASELINES}.quantized_dsgd:QuantizedDsgd",
        "decentralized SGD with stochastic quantization (Yan et al. 2024)",
    ),
    "weighted-erm": Entry(
        f"{_BASELINES}.weighted_erm:WeightedErm",
        "noisy gradients with a weight per agent (Kang et al. 2021)",
    ),
    "federated-independent": Entry(
        f"{_BASELINES}.federated_independent:federated_independent",
        "online federated learning with independent noise (Liu et al. 2023)",
    ),
    "federated-noiseless": Entry(
        f"{_BASELINES}.federated_noiseless:federated_noiseless",
        "online federated learning without noise or privacy (Mitra et al. 2021)",
    ),
}
# In a script an algorithm is a verb: hearsay.sdm_dsgd(step=...).
VERBS = {name: name.replace("-", "_") for name in ENTRIES}


def load(name: str) -> Any:
    """What builds the algorithm of that name."""
    module, _, attribute = ENTRIES[name].place.partition(":")
    return getattr(import_module(module), attribute)

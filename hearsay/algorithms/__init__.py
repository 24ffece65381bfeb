"""Every algorithm, by the name that the command line uses."""

from __future__ import annotations

from hearsay.algorithms.baselines import Dola, Dsgd, Pdop
from hearsay.algorithms.ldp_online import LdpOnline, ldp_online
from hearsay.base import Algorithm

REGISTRY: dict[str, type[Algorithm]] = {cls.name: cls for cls in (LdpOnline, Dsgd, Dola, Pdop)}

__all__ = ["REGISTRY", "Dola", "Dsgd", "LdpOnline", "Pdop", "ldp_online"]

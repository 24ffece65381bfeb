"""Every algorithm, by the name that the command line uses."""

from __future__ import annotations

from hearsay.algorithms.baselines import Dola, Dsgd, Pdop
from hearsay.algorithms.ldp_online import LdpOnline
from hearsay.base import Algorithm

REGISTRY: dict[str, type[Algorithm]] = {cls.name: cls for cls in (LdpOnline, Dsgd, Dola, Pdop)}

# In a script an algorithm is a verb: hearsay.dsgd(step=...).
ldp_online, dsgd, dola, pdop = LdpOnline, Dsgd, Dola, Pdop

__all__ = ["REGISTRY", "Dola", "Dsgd", "LdpOnline", "Pdop", "dola", "dsgd", "ldp_online", "pdop"]

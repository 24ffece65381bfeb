"""Accuracy against epsilon: what an agent gains by joining, and what privacy costs it.

series.py      who learns, with what: alone, on the network, at a trusted server
sharing.py     the same with noise that pairs of agents share, by the number of colluders
rule.py        the settings of each, from public facts only
rehearsal.py   where no bound tells which settings are best: a trial on made-up records
points.py      what one series measures at one epsilon, and its file
running.py     all of them, kept as they are finished
"""

from hearsay.tradeoff.running import Frontier, frontier

__all__ = ["Frontier", "frontier"]

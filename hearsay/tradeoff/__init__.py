"""Accuracy against epsilon: what an agent gains by joining, and what privacy costs it.

series.py      who learns, with what: alone, on the network, at a trusted server
sharing.py     the same with noise that pairs of agents share, by the number of colluders
rule.py        the settings of each, from public facts only
rehearsal.py   where no bound tells which settings are best: a trial on made-up records
rehearsing.py  settings that learn, tried on several kinds of made-up records: hs.rehearse
contest.py     which candidate is best on them
made_up.py     those records
trial.py       many settings at once on them
choices.py     the settings that are tried
arriving.py    those for records that arrive round by round
advice.py      what would help where the answer is no better than a guess
sizes.py       agents of about one size
weighing.py    how much agents of different sizes count
kept.py        choices that were made before, in the cache folder
settled.py     a configuration that names no algorithm, with those settings written in
beside.py      what a run's accuracy is worth: guessing, no noise, alone
measuring.py   the test accuracy of what a run releases
points.py      what one series measures at one epsilon, and its file
running.py     all of them, kept as they are finished
"""

from hearsay.tradeoff.rehearsing import Rehearsal, rehearse, usual_graph
from hearsay.tradeoff.running import Frontier, frontier

__all__ = ["Frontier", "Rehearsal", "frontier", "rehearse", "usual_graph"]

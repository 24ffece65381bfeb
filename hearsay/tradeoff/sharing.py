"""Shared secrets as rows of the table: one row for every number of colluders that they are planned
for.

The certificate of such a row says epsilon against so many of the others, and its curve what the
same run costs if more of them collude. The last point of the curve, all of them, is what own noise
alone gives, and stands beside every accuracy.

    secrets      three rows: nobody colludes, the planned number, half of the others
    secrets-N    one: N collude
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hearsay import _validate as require
from hearsay.graphs import Graph
from hearsay.graphs.secrets import Secrets
from hearsay.problems.task import Task
from hearsay.tradeoff.rule import noisy_gradient, setting
from hearsay.tradeoff.series import ALL, LARGEST, SERIES, Candidate, Series, on_the_network

KEY = "secrets"
# Before the trusted server, which they come close to.
KEYS = (*(one.key for one in ALL[:-2]), KEY, *(one.key for one in ALL[-2:]))


def with_secrets(colluders: int, agents: int) -> Series:
    """The row of a network that is planned for so many colluders.

    Example:
      >>> with_secrets(1, 5).label
      'shared secrets, 1 of 4 others colludes'
    """

    def candidates(task: Task, graph: Graph, epsilon: float, delta: float) -> tuple[Candidate, ...]:
        secrets = Secrets(colluders)
        shared = secrets.shared(graph.agents)
        chosen = setting(task, graph, epsilon, delta, replace(secrets, ratio=shared.ratios[0]))
        words = f"{chosen}, shared noise {shared.ratios[0]:g} times own"
        return (Candidate(noisy_gradient(chosen), chosen.rounds, words),)

    who = f"{colluders} of {agents - 1} others collude{'s' if colluders == 1 else ''}"
    label = f"shared secrets, {who if colluders else 'nobody colludes'}"
    return Series(f"{KEY}-{colluders}", label, on_the_network, candidates)


def chosen_series(
    keys: Sequence[str] | None,
    agents: int,
    colluders: Iterable[int] | int | None,
    alike: bool = True,
) -> list[Series]:
    """The rows that are wanted, in the order in which they are named.

    Args:
      keys: some of KEYS, or secrets-N; all that a network of so many agents can have unless given.
      agents: of the network.
      colluders: that "secrets" is planned for, beside none and half of the others; 1 unless given.
      alike: agents hold about as many records each; otherwise who has most of them has a row where
        all are wanted.

    Example:
      >>> [one.key for one in chosen_series(["alone", "secrets"], 5, [1])]
      ['alone', 'secrets-0', 'secrets-1', 'secrets-2']
    """
    most = max(0, agents - 2)
    if colluders is None:
        colluders = min(1, most)
    given = [colluders] if isinstance(colluders, int) else colluders
    planned = list(require.each(require.natural)("colluders", given))
    if planned and max(planned) > most:
        require.fail("colluders", f"at most {most}, all others but one", max(planned))
    found: list[Series] = []
    for key in keys or (KEYS if agents > 1 else SERIES):
        if key == LARGEST and not keys and alike:
            continue
        if key == KEY:
            few = {0, *planned, min(most, (agents - 1) // 2)}
            found += [with_secrets(number, agents) for number in sorted(few)]
        elif key.startswith(f"{KEY}-") and key.removeprefix(f"{KEY}-").isdecimal():
            found.append(with_secrets(int(key.removeprefix(f"{KEY}-")), agents))
        else:
            found.append(SERIES[require.one_of("series", key, KEYS)])
    return list({one.key: one for one in found}.values())

"""What an agent's records have spent in all runs on this host, in a file beside the runs' folders:
NAME.budget.

A second run on the same records adds to what the first one spent, whatever it is called. So
every run is entered here, with a fingerprint of each of its records, before its first message
is committed: with its whole plan, as if all its messages had been sent. A run that ends early is
over-counted, and none is ever under-counted, whatever moment a process dies at. The same ledger (by
its `instance` and run) is entered once; a run that was deleted and begun again under the same name
has another ledger, and counts again. A rehearsal's noise can be subtracted by anybody who knows the
seed: it counts as infinite.

**Records** are known again by their numbers as they are in the file, before scaling and clipping,
in any order and any company: what a record has spent is the composition of the runs that it was in,
and the largest over the records of this run is what is printed: the largest epsilon and the largest
delta, be they those of different records. A record that was edited or rescaled is another one: that
they are not is *declared*. Fingerprints are keyed, the key is drawn with the file, and without it
they confirm no guess.

**Composition** (adaptive: later runs may be chosen by what earlier ones gave). Laplace: epsilons
add up. Gaussian: rho adds up, and is converted at this run's delta (mechanisms/rounding.py).
Ternary: deltas add up. Kinds together: epsilons and deltas add up.

**Adjacency** (privacy/adjacency.py). Runs under replace and under zero-out are counted in one of
the two, that of the run that is about to begin. What zero-out runs cost under replace follows by
way of the empty record: 4 rho for Gaussian noise (twice the shift), else (2 epsilon,
(1 + e^epsilon) delta). A run under replace costs no more under zero-out: clips and bounds on
records hold for an empty one too (a gradient of 0 is shorter than any clip, and features of 0 are
admissible). A declared change says nothing of an empty record: under zero-out such a run counts as
infinite.

**Secrets** (graphs/secrets.py). A run with shared noise is counted as it is planned: at the number
of colluders that it names, so that a total holds if at most the smallest of these numbers collude.
What it costs if all others collude is entered beside it, and told beside every total.

**The file** (book.py). One that is damaged, another agent's, or does not know a ledger that lies
beside it (missing.py) is refused. One that was lost together with all ledgers, or left behind
without them, forgets: that it was not is declared as well.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hearsay.deploy import mark
from hearsay.deploy.book import EVERY, SUFFIX, Book, Spent, contents, locked, write
from hearsay.deploy.missing import checked
from hearsay.deploy.rows import LedgerError
from hearsay.privacy.adjacency import REPLACE, ZERO_OUT, implied
from hearsay.privacy.certificate import Certificate, Lifetime, few, show
from hearsay.privacy.description import numbers

if TYPE_CHECKING:
    from hearsay.deploy.deployment import Deployment
    from hearsay.deploy.settings import Member

log = logging.getLogger("hearsay.agent")
_UP = 1 + 2.0**-50  # more than adding up loses
DECLARED = "declared"  # of a run under replace whose change of a gradient is somebody's word


def counted_under(run: Spent, adjacency: str) -> Spent:
    """The run with what it costs under that adjacency."""
    if adjacency == ZERO_OUT:
        return run._replace(epsilon=math.inf, rho=None) if run.adjacency == DECLARED else run
    if run.adjacency != ZERO_OUT:
        return run
    if run.rho is not None:
        return run._replace(rho=4 * run.rho)
    epsilon, delta = implied(run.epsilon, run.delta)
    return run._replace(epsilon=epsilon, delta=delta)


def compose(
    runs: Sequence[Spent], delta: float | None, adjacency: str = REPLACE
) -> tuple[float, float]:
    """(epsilon, delta) of the runs together under that adjacency, Gaussian ones at that delta,
    or at the smallest of their own.
    """
    from hearsay.mechanisms import rounding

    runs = [counted_under(run, adjacency) for run in runs]
    gaussian = [run for run in runs if run.rho is not None]
    other = [run for run in runs if run.rho is None]
    epsilon, slack = math.fsum(run.epsilon for run in other), math.fsum(run.delta for run in other)
    if gaussian:
        at = delta or min(run.delta for run in gaussian)
        rho = math.fsum(run.rho or 0.0 for run in gaussian) * (_UP if len(gaussian) > 1 else 1.0)
        epsilon += rounding.gaussian_epsilon(rho, at, sum(run.numbers for run in gaussian))
        slack += at
    up = _UP if len(runs) > 1 else 1.0
    return (epsilon * up, slack * up) if slack < 1 else (math.inf, 1.0)


def planned_spending(
    plan: Deployment, agent: int, run: str, instance: str, *, rehearsed: bool
) -> Spent:
    """The whole plan of an agent, as it is entered."""
    from hearsay.deploy import budget

    found, certificate = plan.certificate.budgets[agent], plan.certificate
    rest = (instance, run, time.time(), plan.messages)
    adjacency = DECLARED if plan.task.declared else plan.task.adjacency
    if rehearsed or not math.isfinite(found.epsilon):
        kind = "rehearsal" if rehearsed else certificate.mechanism
        return Spent(*rest, kind, math.inf, 0.0, adjacency=adjacency)
    shared = _if_all_collude(certificate, agent)
    if found.rho is not None and certificate.delta is not None:
        return Spent(
            *rest,
            certificate.mechanism,
            found.epsilon,
            certificate.delta,
            found.rho,
            budget.numbers(plan),
            adjacency=adjacency,
            **shared,
        )
    # Amplified Gaussian noise has no rho, and its epsilon holds at the certificate's delta.
    at = certificate.delta if plan.algorithm.law.at_delta else 0.0
    delta = (at if found.delta is None else found.delta) or 0.0
    return Spent(*rest, certificate.mechanism, found.epsilon, delta, adjacency=adjacency, **shared)


def _if_all_collude(certificate: Certificate, agent: int) -> dict[str, Any]:
    """What is entered beside the plan of a run with secrets."""
    found = certificate.budgets[agent]
    if certificate.secrets is None or found.description is None:
        return {}
    description = certificate.descriptions[found.description]
    others = certificate.secrets.agents - 1
    alone = numbers(description.against(others, 1.0), certificate.horizon, certificate.delta)
    return {
        "colluders": certificate.colluders,
        "own_epsilon": found.all_collude,
        "own_rho": alone.rho,
    }


def together(book: Book, own: Spent, own_set: np.ndarray, delta: float | None) -> Lifetime:
    """What the records of this run have spent in others and with this one, under its adjacency."""
    # A ledger that was copied before its first message has the instance of the other, but
    # never its run. What was entered for want of the file (missing.py) is about more than that run.
    others = [
        run
        for run in book.runs
        if (run.instance, run.run) != (own.instance, own.run) or run.records == EVERY
    ]
    inside = {run.records: book.within(run, own_set) for run in others}
    others = [run for run in others if inside[run.records].any()]
    shared = np.array([inside[run.records] for run in others], bool).reshape(
        len(others), len(own_set)
    )
    under = ZERO_OUT if own.adjacency == ZERO_OUT else REPLACE
    worst = Lifetime(0.0, *compose([own], delta, under))
    most, alone = worst.delta, compose([own.alone], delta, under)[0]
    for pattern in np.unique(shared, axis=1).T if others else ():
        before = [run for run, there in zip(others, pattern, strict=True) if there]
        total, slack = compose([*before, own], delta, under)
        most = max(most, slack)
        alone = max(alone, compose([run.alone for run in (*before, own)], delta, under)[0])
        if (total, slack) > (worst.total, worst.delta):
            worst = Lifetime(
                compose(before, delta, under)[0], total, slack, tuple(run.run for run in before)
            )
    worst = replace(worst, delta=most, records=int(shared.any(axis=0).sum()))
    planned = [run.colluders for run in (*others, own) if run.colluders is not None]
    return replace(worst, colluders=min(planned), all_collude=alone) if planned else worst


def adjacency_of(book: Book) -> str:
    """What its totals are about: zero-out where all its runs are, else replace."""
    alike = book.runs and all(run.adjacency == ZERO_OUT for run in book.runs)
    return ZERO_OUT if alike else REPLACE


def worst_alone(book: Book) -> float | None:
    """The epsilon of `worst` if all other agents collude; None where no run has secrets."""
    if all(run.colluders is None for run in book.runs):
        return None
    return worst(book._replace(runs=[run.alone for run in book.runs]))[0]


def worst(book: Book) -> tuple[float, float]:
    """(epsilon, delta) that no record has passed, under `adjacency_of` it; Gaussian runs at the
    smallest delta of theirs.
    """
    under = adjacency_of(book)
    # Where no record is known, one stands for all.
    every = np.unique(np.concatenate(book.sets)) if book.sets else np.zeros(1, np.uint64)
    shared = np.array([book.within(run, every) for run in book.runs], bool)
    patterns = list(np.unique(shared, axis=1).T) if book.runs else list[np.ndarray]()
    totals = [
        compose([run for run, there in zip(book.runs, one, strict=True) if there], None, under)
        for one in patterns
    ]
    return max((epsilon for epsilon, _ in totals), default=0.0), max(
        (delta for _, delta in totals), default=0.0
    )


def _same(run: Spent, own: Spent) -> bool:
    """The same ledger with the same plan.

    A ledger without a message may still change its plan or records: then both are counted.
    """
    numbers = all(
        math.isclose(a or 0.0, b or 0.0, rel_tol=1e-8)
        for a, b in (
            (run.epsilon, own.epsilon),
            (run.delta, own.delta),
            (run.rho, own.rho),
            (run.own_epsilon, own.own_epsilon),
            (run.own_rho, own.own_rho),
        )
    )
    facts = (
        (one.instance, one.run, one.mechanism, one.numbers, one.adjacency, one.colluders)
        for one in (run, own)
    )
    return numbers and len(set(facts)) == 1


def _with(book: Book, run: Spent, own_set: np.ndarray) -> Book:
    """With that run of those records."""
    known = (n for n, one in enumerate(book.sets) if np.array_equal(one, own_set))
    number = next(known, len(book.sets))
    sets = book.sets if number < len(book.sets) else [*book.sets, own_set]
    return book._replace(runs=[*book.runs, run._replace(records=number)], sets=sets)


def _without(book: Book, own: Spent, own_set: np.ndarray) -> Book:
    """Without what was entered of that run when fewer of its records had arrived, and without sets
    that no run has any more.
    """
    runs = [
        run
        for run in book.runs
        if run.records == EVERY
        or not _same(run, own)
        or not np.isin(book.sets[run.records], own_set).all()
    ]
    kept = sorted({run.records for run in runs} - {EVERY})
    places = {EVERY: EVERY, **{old: new for new, old in enumerate(kept)}}
    return book._replace(
        runs=[run._replace(records=places[run.records]) for run in runs],
        sets=[book.sets[old] for old in kept],
    )


class Account:
    """An agent's records and what they may spend: looked at before a run,
    entered with its first message.
    """

    def __init__(
        self,
        member: Member,
        plan: Deployment,
        agent: int,
        run: str,
        limit: float | None,
        *,
        rehearsed: bool,
    ) -> None:
        self._path, self._rows, self._limit, self._name = (
            member.spent,
            plan.rows,
            limit,
            member.name,
        )
        self._known, self._follows = (b"", np.empty(0, np.uint64)), plan.following is not None
        self._delta = plan.certificate.delta if plan.algorithm.law.at_delta else None
        instance = mark.instance_of(member.ledger) or ""
        self._own = planned_spending(plan, agent, run, instance, rehearsed=rehearsed)
        book = checked(self._path)
        if not book.runs:
            self._notice_others()
        self.lifetime = self._look(book, self._own)
        others = {one.run for one in book.runs if (one.instance, one.run) != (instance, run)}
        if others and len(self._rows) and not self.lifetime.records:
            log.warning(
                "none of these records was in the earlier runs of %s (%s): if they are the same in"
                " another form (rounded, rescaled, with another column), what they spent there is"
                " not counted",
                member.name,
                few(sorted(others), ", "),
            )
        if why := self._exceeded():
            raise ValueError(why)

    def grow(self, rows: np.ndarray) -> None:
        """With hashes of more records, which have yet to be entered."""
        self._rows, self._known = rows, (b"", np.empty(0, np.uint64))

    def enter(self, instance: str) -> str:
        """Before the first message of that ledger is committed, and before a later one where
        records have arrived since.

        Another run may have been entered since it was looked at:
        why this one may not go on, or nothing.
        """
        own = self._own._replace(instance=instance)
        with locked(self._path):
            book = checked(self._path)
            self.lifetime = self._look(book, own)
            own_set = self._fingerprints(book)
            if any(
                _same(run, own) and np.array_equal(book.sets[run.records], own_set)
                for run in book.runs
            ):
                # Whoever entered it may have died before the disk knew of the file's new name.
                mark.sync(self._path.parent)
                return ""
            if why := self._exceeded():
                return why
            if self._follows:
                book = _without(book, own, own_set)
            write(self._path, _with(book, own, own_set))
        return ""

    def _notice_others(self) -> None:
        """Before its first run: what had another name has runs in the file of that name."""
        for path in sorted(self._path.parent.glob(f"*{SUFFIX}")):
            try:
                book = contents(path)
            except LedgerError:  # that agent says so itself
                continue
            own = book.fingerprints(self._rows)
            if known := np.isin(own, np.concatenate([*book.sets, own[:0]])).sum():
                log.warning(
                    "%d of these records were in runs of %s (%s), and %s has no budget file yet:"
                    " what they spent there is not counted. If it is the same agent under a new"
                    " name, end this one, move that file to %s, and call: hearsay network adopt %s",
                    known,
                    path.stem,
                    path,
                    self._name,
                    self._path,
                    self._path,
                )

    def _look(self, book: Book, own: Spent) -> Lifetime:
        return together(book, own, self._fingerprints(book), self._delta)

    def _fingerprints(self, book: Book) -> np.ndarray:
        if self._known[0] != book.key:  # worked out once, as long as nobody else makes the file
            self._known = book.key, book.fingerprints(self._rows)
        return self._known[1]

    def _exceeded(self) -> str:
        found, limit = self.lifetime, self._limit
        # Ternary messages have a delta alone, and other runs may add an epsilon.
        size = max(found.total, found.delta)
        if limit is None or size <= limit:
            return ""
        under = f" (under {ZERO_OUT} adjacency)" if self._own.adjacency == ZERO_OUT else ""
        return (
            f"lifetime in [privacy] must be at least {show(size)} for this run of {self._name}, got"
            f" {limit:g}{under}: {found}. Use other records, or a smaller epsilon ({self._path})"
        )

    def certified(self, plan: Deployment, agent: int) -> Deployment:
        """The plan whose certificate says what was spent before."""
        known = plan.certificate.budgets
        budgets = known.put(replace(known[agent], lifetime=self.lifetime))
        return replace(plan, certificate=replace(plan.certificate, budgets=budgets))

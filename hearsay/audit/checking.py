"""`hearsay.check_algorithm`: an algorithm from outside, through what hearsay's own go through.

The contract (contract.py, plain_loop.py) and the worst case (worst_cases.py), on a few small
problems. It can refute a certificate, never prove it: a ratio above 1 is a counterexample, with its
numbers; none found means that this search found none. The report says both, and a pass is noted for
this very source (certification/stamps.py), so that certificates of the algorithm say so.
"""

from __future__ import annotations

import inspect
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

import hearsay
from hearsay import _validate as require
from hearsay.algorithms import outside
from hearsay.audit import (
    agent_facts,
    contract,
    noise_path,
    plain_loop,
    secret_batches,
    worst_cases,
)
from hearsay.audit.contract import Broken, NotDone
from hearsay.audit.precision import double_precision
from hearsay.base import Algorithm
from hearsay.certification import stamps


class Check(NamedTuple):
    """One check.

    Args:
      name: a short one.
      shows: what it shows where it holds.
      passed: whether it holds; None: it does not apply.
      detail: what was seen, with numbers, or why it does not apply.
    """

    name: str
    shows: str
    passed: bool | None
    detail: str


@dataclass(frozen=True)
class Report:
    """What was found about one algorithm.

    Args:
      algorithm: what was checked, with its options.
      checks: one by one.
      whole: no check was left out.
      stamped: the pass is noted for this source, and certificates of the algorithm say so.
    """

    algorithm: Algorithm
    checks: tuple[Check, ...]
    whole: bool
    stamped: bool = False

    @property
    def failed(self) -> tuple[Check, ...]:
        """What does not hold."""
        return tuple(check for check in self.checks if check.passed is False)

    @property
    def passed(self) -> bool:
        """Nothing failed."""
        return not self.failed

    def __str__(self) -> str:
        kind = type(self.algorithm)
        signs = {True: "holds ", False: "FAILS ", None: "  --  "}
        lines = [f"{self.algorithm.name} ({kind.__module__}:{kind.__qualname__})", ""]
        for check in self.checks:
            lines += [f"{signs[check.passed]} {check.name}: {check.shows}",
                      f"         {check.detail}"]  # fmt: skip
        return "\n".join([*lines, "", *self.words()])

    def words(self) -> Iterator[str]:
        """What all of it says, and what it does not."""
        if self.failed:
            yield (
                f"{len(self.failed)} of {len(self.checks)} checks fail: a certificate of this"
                " algorithm is not to be believed."
            )
            return
        yield f"Nothing failed in {len(self.checks)} checks." + (
            "" if self.whole else " Checks were left out, so nothing is noted."
        )
        yield from _NOT_SHOWN
        if self.stamped:
            yield "Noted for this source: certificates say that it was checked."
        elif self.whole and not outside.is_own(type(self.algorithm)):
            yield (
                "It cannot be known again (its source is not in a file, a function made the class,"
                " or it holds what shows no contents), so certificates will say that nothing"
                " checked it."
            )


_NOT_SHOWN = (
    "Not shown: that no counterexample exists (a search found none, with these options, on small"
    f" linear models, within {worst_cases.LONGEST} messages);",
    "that other options, schedules other than step and noise, losses without a known curvature or"
    " larger networks behave alike; that the code has no other way out (files, sockets, prints).",
)

_CHECKS: dict[str, tuple[str, Callable[..., str]]] = {
    "declaration": (
        "a frozen dataclass whose schedules are read and checked", contract.declaration),
    "messages": (
        "channels, message, coins, draws and releases name the same fields", contract.messages),
    "scales": (
        "noise has at least the scale that releases declare, and the scale follows from rates",
        contract.scales),
    "noise path": (
        "noise is drawn without looking, used once and kept nowhere", noise_path.noise_path),
    "pure": ("the same arguments give the same result", contract.pure),
    "affine leak": ("what is not heard is covered by the two ends", contract.affine),
    "plain loop": ("the simulator gives what one agent at a time gives", plain_loop.plain_loop),
    "relabelling": ("agents do not depend on their numbers", plain_loop.relabelled),
    "agent facts": ("agents that are certified together have what budgets follow from in common",
                    agent_facts.agent_facts),
    "magnitudes": ("the rounding of a deployed update is covered", contract.magnitudes),
    "noise": ("the noise has the law, scale and independence that the certificate counts",
              worst_cases.noise),
    "calibration": ("noise for a budget meets it", worst_cases.calibration),
    "secret batches": ("where it claims that they cost less, every coin has a message of its own",
                       secret_batches.claimed),
    "brute force": ("random adversaries stay within the certificate", worst_cases.brute_force),
    "search": ("adversaries that climb stay within the certificate", worst_cases.climbing),
}  # fmt: skip
CHECKS = tuple(_CHECKS)
_SIZED = ("noise", "secret batches", "brute force", "search")


def check_algorithm(
    algorithm: Algorithm | Callable[..., Algorithm] | str,
    *,
    only: Sequence[str] | None = None,
    thorough: bool = True,
    progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Report:
    """Hold an algorithm against the contract and its certificate against adversaries.

    Where all checks pass, and none was left out, that is noted for this very source, and
    certificates of the algorithm say so.

    Args:
      algorithm: a class (with its usual options), an algorithm, or a name.
      only: names of checks (`hearsay.audit.checking.CHECKS`); None: all of them.
      thorough: several problems, graphs and samplers; False: one, in a few seconds.
      progress: called with (name, done, total).

    Example:
      >>> import hearsay as hs
      >>> hs.check_algorithm(hs.dsgd, only=["declaration", "affine leak"]).passed
      True
    """
    chosen = [require.one_of("only", name, CHECKS) for name in (CHECKS if only is None else only)]
    one = _built(algorithm)
    found = list[Check]()
    with double_precision():
        for done, name in enumerate(chosen):
            progress(name, done, len(chosen))
            found.append(_check(name, one, thorough))
        progress("done", len(chosen), len(chosen))
    whole = thorough and set(chosen) == set(CHECKS)
    report = Report(one, tuple(found), whole)
    if not report.passed:
        stamps.stamp(one, refuted=True)
    elif whole:
        return replace(report, stamped=stamps.stamp(one) is not None)
    return report


def _built(given: Any) -> Algorithm:
    if isinstance(given, str):
        return outside.algorithm(given)
    if isinstance(given, Algorithm):
        return given
    if inspect.isclass(given) and not issubclass(given, Algorithm):
        require.fail("algorithm", "a class that inherits hearsay.base.Algorithm", given)
    if inspect.isabstract(given):
        left = ", ".join(sorted(given.__abstractmethods__))
        require.fail("algorithm", "a whole algorithm", f"{given.__name__}, which lacks {left}")
    if not callable(given):
        require.fail("algorithm", "a class, an algorithm or a name", given)
    name = getattr(given, "__name__", str(given))
    try:
        built = given()
    except TypeError as error:
        raise ValueError(
            f"algorithm must have usual options, or be given with them ({name}(step=...)): {error}"
        ) from error
    return outside.settled("algorithm", name, built)


def _check(name: str, algorithm: Algorithm, thorough: bool) -> Check:
    shows, look = _CHECKS[name]
    look = partial(look, thorough=thorough) if name in _SIZED else look
    try:
        return Check(name, shows, True, look(contract.subject(algorithm)))
    except NotDone as error:
        return Check(name, shows, None, f"not done: {error}")
    except Broken as error:
        return Check(name, shows, False, str(error))
    # Whatever the algorithm's own code raises is a finding about it.
    except Exception as error:
        return Check(
            name, shows, False, f"it fails with {type(error).__name__}: {error}{_where(error)}"
        )


def _where(error: Exception) -> str:
    """The innermost place of the algorithm's own code, and what to write there instead where the
    error is the usual one.
    """
    ours, libraries = Path(hearsay.__file__).parent, sysconfig.get_paths()["purelib"]
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not Path(frame.filename).is_relative_to(ours)
        and not frame.filename.startswith(libraries)
    ]
    text = f" ({Path(own[-1].filename).name}, line {own[-1].lineno}: {own[-1].line})" if own else ""
    if isinstance(error, jax.errors.ConcretizationTypeError):
        text += "; numbers are not known yet there: jnp.where takes the place of if, jnp that of np"
    return text

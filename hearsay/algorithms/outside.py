"""Algorithms from outside: other people's packages, and any class by its place.

A name is looked up in this order:

    hearsay's own       registry.py; nothing else can take such a name
    installed packages  the entry points of the group "hearsay.algorithms" (pyproject.toml of a
                        package: [project.entry-points."hearsay.algorithms"]
                        plain-gossip = "plain_gossip:PlainGossip")
    a place             "package.module:Class", or ":function" for one that builds an algorithm

Names of installed packages are read from their metadata: listing them imports none of them. Using
one runs its code, as installing it allowed. A place makes Python import whatever module it names,
so it counts only where somebody typed it: on the command line or in a program. A place that stands
in a file is refused unless it was typed too (`Config.allowed`).
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from hearsay import _validate as require
from hearsay.algorithms.registry import ENTRIES, load

if TYPE_CHECKING:
    from hearsay.base import Algorithm

GROUP = "hearsay.algorithms"
_PLACE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def installed() -> dict[str, list[EntryPoint]]:
    """The algorithms of installed packages by name; nothing is imported."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.value):
        # A package can be found twice on the path: the same place is the same algorithm.
        known = found.setdefault(entry.name, [])
        if all(entry.value != other.value for other in known):
            known.append(entry)
    return dict(sorted(found.items()))


def names() -> list[str]:
    """Every name that can be used, hearsay's own first."""
    return [*ENTRIES, *(name for name in installed() if name not in ENTRIES)]


def is_place(name: Any) -> bool:
    """It says where an algorithm is, instead of what it is called."""
    return isinstance(name, str) and ":" in name


def package_of(entry: EntryPoint) -> str:
    """The distribution that an entry point comes from, in words."""
    return "an unknown package" if entry.dist is None else entry.dist.name


def builder(name: str, where: str = "algorithm") -> Callable[..., Algorithm]:
    """What builds the algorithm of that name or at that place.

    Args:
      name: hearsay's own, that of an installed package, or "package.module:Class".
      where: what error messages call it.
    """
    if is_place(name):
        return _imported(where, name, f"{name!r}")
    found = installed()
    require.one_of(where, name, [*ENTRIES, *(n for n in found if n not in ENTRIES)])
    if name in ENTRIES:
        for entry in found.get(name, []):
            warnings.warn(
                f"{name} is hearsay's own algorithm: {entry.value} of {package_of(entry)}, which"
                " has taken the same name, is not used; name it by its place",
                stacklevel=2,
            )
        return load(name)
    several = found[name]
    if len(several) > 1:
        listed = ", ".join(f"{e.value} of {package_of(e)}" for e in several)
        require.fail(where, f"a name of one algorithm: {listed}; name one by its place", name)
    place = several[0].value.replace(" ", "")
    return _imported(where, place, f"{name!r} ({place} of {package_of(several[0])})")


def algorithm(name: str, **options: Any) -> Algorithm:
    """The algorithm of that name, or at that place, with those options.

    Args:
      name: hearsay's own, that of an installed package, or "package.module:Class".
      options: as its class or function takes them.

    Example:
      >>> import hearsay as hs
      >>> hs.algorithm("dsgd", noise=2).noise
      Constant(value=2.0)
    """
    return settled("algorithm", name, builder(name)(**options))


def settled(where: str, name: str, built: Any) -> Algorithm:
    """What was built, if it is an algorithm that goes under a name of its own."""
    from hearsay.base import Algorithm

    if not isinstance(built, Algorithm):
        require.fail(where, "something that builds an Algorithm", f"{name!r}, which built {built}")
    _require_own_name(where, name, type(built), built.name)
    return built


def is_own(kind: type) -> bool:
    """The class is one of hearsay's."""
    return kind.__module__.partition(".")[0] == "hearsay"


def _require_own_name(where: str, name: str, kind: type, called: Any) -> None:
    if called in ENTRIES and not is_own(kind):
        require.fail(
            where,
            f"an algorithm whose own name (its field `name`) is not one of hearsay's, {called!r}",
            name,
        )


def _imported(where: str, place: str, shown: str) -> Callable[..., Any]:
    module, attribute = _module(where, place, shown)
    found = getattr(module, attribute, None)
    if found is None:
        path = place.partition(":")[0]
        known = [n for n, v in vars(module).items() if _is_algorithm(v) and v.__module__ == path]
        have = f"it has {', '.join(known)}" if known else "it defines no algorithm"
        raise ValueError(f"{where} must name something in {path}, got {shown}: {have}")
    return _require_builder(where, shown, found)


def function_at(where: str, place: str) -> Callable[..., Any]:
    """What stands at a place that somebody typed, to be called.

    Args:
      where: what error messages call it.
      place: "package.module:function".
    """
    module, attribute = _module(where, place, f"{place!r}")
    found = getattr(module, attribute, None)
    if not callable(found):
        require.fail(where, f"the place of a function in {module.__name__}", place)
    return found


def _module(where: str, place: str, shown: str) -> tuple[Any, str]:
    """The module that a place names, imported, and what is meant in it."""
    if not _PLACE.fullmatch(place):
        raise ValueError(f"{where} must be package.module:Class, got {shown}")
    path, _, attribute = place.partition(":")
    try:
        return import_module(path), attribute
    # An installed package may fail in any way: it is named, and other names still work.
    except (Exception, SystemExit) as error:
        rule = f"{where} must name a module that can be imported, got {shown}"
        absent = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if absent and (path == absent or path.startswith(f"{absent}.")):
            raise ValueError(
                f"{rule}: there is no module {absent!r} (is its package installed, or its folder on"
                " PYTHONPATH?)"
            ) from error
        raise ValueError(
            f"{rule}: importing {path} fails with {type(error).__name__}: {error}"
        ) from error


def _is_algorithm(found: Any) -> bool:
    from hearsay.base import Algorithm

    return inspect.isclass(found) and issubclass(found, Algorithm)


def _require_builder(where: str, shown: str, found: Any) -> Callable[..., Any]:
    rule = "a class that inherits hearsay.base.Algorithm, or a function that builds one"
    if inspect.isfunction(found):
        return found
    if not _is_algorithm(found):
        raise ValueError(f"{where} must be {rule}, got {shown}, which is {found!r:.80}")
    if inspect.isabstract(found):
        left = ", ".join(sorted(found.__abstractmethods__))
        raise ValueError(f"{where} must be a whole algorithm, got {shown}, which lacks {left}")
    usual = found.__dataclass_fields__["name"].default
    _require_own_name(where, shown, found, usual)
    return found

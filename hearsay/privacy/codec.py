"""Frozen dataclasses as JSON and back: exactly, or not at all.

A dataclass becomes an object of its fields. Where a field may hold one of several kinds (a
schedule, a pattern, a proof, a factorization) the object names its `kind`; a mechanism is its name.
Numbers are written with all their digits, so that they come back as they were; infinity, which JSON
does not have, is the word "infinite". A class with a form of its own (budgets.py) writes it with
`to_plain` and reads it with `from_plain`.

Reading refuses what it does not know: a key that is missing, unknown or there twice, a number
that is text, NaN, and whatever the class itself refuses (a negative scale). Errors name the place,
such as `descriptions[2].account.recursion.step.scale`.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, lru_cache
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

from hearsay import _validate as require
from hearsay.mechanisms import MECHANISMS, Mechanism
from hearsay.privacy.account import Assumption

WORDS = {"infinite": math.inf, "-infinite": -math.inf}


def encode(value: Any) -> Any:
    """As `json.dumps` can have it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
    if isinstance(value, dict):
        return {key: encode(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(one) for one in value]
    if isinstance(value, Mechanism):
        return value.name
    if isinstance(value, Assumption):
        return _of_assumption(value)
    if hasattr(value, "to_plain"):
        return value.to_plain(encode)
    if is_dataclass(value):
        inner = {f.name: encode(getattr(value, f.name)) for f in fields(value)}
        name = _names().get(type(value))
        return inner if name is None else {"kind": name, **inner}
    return value


@lru_cache(maxsize=1024)
def _of_assumption(value: Assumption) -> dict[str, str]:
    """Every agent of a large network has the same few of them."""
    return {"kind": value.kind, "text": value.text}


@lru_cache(maxsize=1024)
def _assumption(kind: str, text: str) -> Assumption:
    return Assumption(kind, text)


def decode(kind: Any, data: Any, path: str) -> Any:
    """The value of that type that `encode` made `data` of; ValueError with the path otherwise."""
    if kind is Assumption and isinstance(data, dict) and data.keys() == {"kind", "text"}:
        words = [_text(data[key], f"{path}.{key}") for key in ("kind", "text")]
        try:
            return _assumption(*words)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    if get_origin(kind) in (Union, types.UnionType):
        options = [option for option in get_args(kind) if option is not type(None)]
        if data is None and len(options) < len(get_args(kind)):
            return None
        return decode(options[0], data, path)
    if get_origin(kind) is tuple:
        return _sequence(get_args(kind), data, path)
    if kind in _families():
        known = _families()[kind]
        if not isinstance(data, dict) or "kind" not in data:
            _refuse(path, f"an object with a kind ({', '.join(known)})", data)
        word = data["kind"]
        if not isinstance(word, str) or word not in known:
            _refuse(f"{path}.kind", f"one of {', '.join(known)}", word)
        rest = {key: value for key, value in data.items() if key != "kind"}
        return _object(known[word], rest, path)
    if kind in _PLAIN:
        return _PLAIN[kind](data, path)
    if hasattr(kind, "to_plain"):
        return kind.from_plain(data, path, decode)
    return _object(kind, data, path)


def read(text: str, what: str) -> Any:
    """JSON without repeated keys and without NaN."""
    try:
        return json.loads(
            text, object_pairs_hook=_once, parse_constant=_constant, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} must be JSON as to_json writes it: {error}") from error


def _object(kind: type, data: Any, path: str) -> Any:
    if not isinstance(data, dict):
        _refuse(path, f"an object with the fields of {kind.__name__}", data)
    known, hints = {f.name: f for f in fields(kind)}, _hints(kind)  # type: ignore[arg-type]
    for key in data:
        if key not in known:
            _refuse(f"{path}.{key}", f"one of the keys {', '.join(known)}", key)
    # A description is all there or it is damaged; what earlier versions wrote may have fewer keys.
    earlier, later = getattr(kind, "earlier_versions", False), getattr(kind, "later", ())
    for key, field in known.items():
        optional = (earlier or key in later) and field.default is not MISSING
        if key not in data and not optional:
            raise ValueError(f"{path}.{key} must be given, and is missing")
    inner = {}
    for key, one in data.items():
        # A formula that is no guarantee may be undefined; nothing else may.
        undefined = one == "nan" and known[key].metadata.get("undefined")
        inner[key] = math.nan if undefined else decode(hints[key], one, f"{path}.{key}")
    try:
        return kind(**inner)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{path}: {error}") from error


def _sequence(parts: tuple, data: Any, path: str) -> tuple:
    if not isinstance(data, list):
        _refuse(path, "a list", data)
    if len(parts) == 2 and parts[1] is Ellipsis:
        parts = (parts[0],) * len(data)
    if len(parts) != len(data):
        _refuse(path, f"a list of {len(parts)}", data)
    pairs = zip(parts, data, strict=True)
    return tuple(decode(part, one, f"{path}[{i}]") for i, (part, one) in enumerate(pairs))


def _real(data: Any, path: str) -> float:
    if isinstance(data, str) and data in WORDS:
        return WORDS[data]
    if isinstance(data, bool) or not isinstance(data, (int, float)):
        _refuse(path, 'a number, or "infinite"', data)
    try:
        return float(data)
    except OverflowError:
        _refuse(path, "a number that float64 can hold", data)


def _whole(data: Any, path: str) -> int:
    if isinstance(data, bool) or not isinstance(data, int):
        _refuse(path, "a whole number", data)
    return data


def _text(data: Any, path: str) -> str:
    if not isinstance(data, str):
        _refuse(path, "text", data)
    return data


def _flag(data: Any, path: str) -> bool:
    if not isinstance(data, bool):
        _refuse(path, "true or false", data)
    return data


def _mechanism(data: Any, path: str) -> Mechanism:
    if not isinstance(data, str) or data not in MECHANISMS:
        _refuse(path, f"one of {', '.join(MECHANISMS)}", data)
    return MECHANISMS[data]


_PLAIN: dict[Any, Callable[[Any, str], Any]] = {
    float: _real,
    int: _whole,
    str: _text,
    bool: _flag,
    Mechanism: _mechanism,
}


@cache
def _families() -> dict[Any, dict[str, type]]:
    """The kinds that a field of that type may hold, by name."""
    from hearsay.mechanisms.factorized.kinds import FACTORIZATIONS, Factorization
    from hearsay.privacy.account import Account
    from hearsay.privacy.factorized import FactorizedAccount
    from hearsay.privacy.participation import PATTERNS, Participation
    from hearsay.privacy.recursion_account import RecursionAccount
    from hearsay.privacy.sampled import PoissonAccount, SubsetAccount
    from hearsay.schedules import SCHEDULES, Schedule

    return {
        Schedule: dict(SCHEDULES),
        Participation: dict(PATTERNS),
        Factorization: dict(FACTORIZATIONS),
        Account: {
            "recursion": RecursionAccount,
            "factorized": FactorizedAccount,
            "poisson": PoissonAccount,
            "subset": SubsetAccount,
        },
    }


@cache
def _names() -> dict[type, str]:
    return {kind: name for family in _families().values() for name, kind in family.items()}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; a key that is there twice says two things."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a key must be there once, got {', '.join(key for key, _ in pairs)}")
    return found


def _constant(word: str) -> NoReturn:
    raise ValueError(f"numbers must be finite or the word infinite, got {word}")


def _finite(digits: str) -> float:
    """A number whose digits float64 can hold: 1e400 would be read as infinity."""
    found = float(digits)
    return found if math.isfinite(found) else _constant(digits)


def _refuse(path: str, rule: str, value: Any) -> NoReturn:
    require.fail(path, rule, value)

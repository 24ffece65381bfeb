"""What the commands of a real network share: their options, and what must be installed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

NET = "net.toml"
_PLACE = typer.Argument(
    metavar="NETWORK",
    help=f"Its {NET}, or the folder in which that lies; nothing where it lies in this one.",
    show_default=False,
)
_FILE = typer.Option("--config", help=f"Its {NET}: the same as an option.")
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow plain TCP between machines: anybody can listen, forge and disturb.",
    ),
]
NoPrivacy = Annotated[
    bool, typer.Option("--no-privacy", help="Allow a run whose budget is infinite.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--simulate-noise",
        metavar="SEED",
        help="NOT PRIVATE, for tests: the simulator's noise of that seed.",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        help=(
            "A place (package.module:Class) that net.toml may name as its algorithm: Python imports"
            " it. Names of installed packages need none; repeatable."
        )
    ),
]
Page = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html",
        help=(
            "A page to watch in a browser, written anew until all are done: where everybody is, and"
            " what deserves a look."
        ),
    ),
]
Every = Annotated[
    float,
    typer.Option(
        help="With --page: after how many seconds it is written anew.", min=1.0, max=86400.0
    ),
]


def of_network(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that has an argument `config` the two ways to name a network."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    ways = [
        inspect.Parameter(name, keyword, default=None, annotation=Annotated[Path | None, info])
        for name, info in (("place", _PLACE), ("file", _FILE))
    ]
    own = inspect.signature(command, eval_str=True)
    others = [p.replace(kind=keyword) for p in own.parameters.values() if p.name != "config"]

    @functools.wraps(command)
    def wrapper(*, place: Path | None = None, file: Path | None = None, **words: Any) -> None:
        command(config=net_file(place, file), **words)

    wrapper.__signature__ = own.replace(parameters=[*ways, *others])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in [*ways, *others]}
    return wrapper


def net_file(place: Path | None, file: Path | None) -> Path:
    """The net.toml that was meant."""
    if place is not None and file is not None and place != file:
        raise ValueError(f"a network must be named once, got {place} and --config {file}")
    named = place or file
    if named is None and not Path(NET).is_file():
        raise ValueError(
            f"a network must be named, and there is no {NET} in this folder: give its {NET}, or the"
            " folder in which that lies"
        )
    named = named or Path(NET)
    if named.is_dir():
        named /= NET
        if not named.is_file():
            raise ValueError(f"{named.parent} must hold a {NET} (hearsay network init makes one)")
    return named


def require_extra() -> None:
    """Fail with what to install, before anything else does."""
    missing = []
    for module in ("zenoh", "safetensors", "cryptography"):
        try:
            __import__(module)
        except ImportError:
            missing.append(module)
    if missing:
        raise ValueError(
            f"{', '.join(missing)} must be installed to run a network: pip install '.[network]' in"
            " a checkout of hearsay, or 'FILE.whl[network]' for a wheel"
        )

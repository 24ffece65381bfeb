"""What the commands of a real network share: their options, and what must be installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NetConfig = Annotated[Path, typer.Option("--config", help="The network's net.toml.")]
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

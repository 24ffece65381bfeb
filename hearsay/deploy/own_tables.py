"""A folder to start from for people with tables of their own: `hearsay network init --schema`.

    net.toml       an agent for every table, named after its file; how many rows each has, and what
                   was chosen by rehearsal
    schema.toml    a copy: it is public, and every host needs one
    keys/          test certificates

Tables stay where they are: net.toml says where. On real hosts every agent has its own table only.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hearsay import _validate as require
from hearsay._files import write_atomically
from hearsay.deploy.launch import choose, make_keys
from hearsay.deploy.settings import NAME
from hearsay.tables.schema import Schema

_HEAD = """\
# Agents that learn together from tables of their own. Every agent holds a copy of this file and of
# schema.toml; see docs/network.md.
"""


@require.plain_arguments
def initialise_tables(
    folder: Path,
    schema: Path,
    tables: Sequence[Path],
    *,
    epsilon: float,
    delta: float = 1e-5,
    colluders: int | None = None,
    records: int | None = None,
    per_step: int = 1,
    run: str = "first-run",
    port: int = 7447,
    secure: bool = True,
    notify: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write the folder; returns the path of net.toml.

    Args:
      folder: a new one.
      schema: what is public of the tables.
      tables: one for each agent.
      epsilon: what every row may cost.
      delta: at which.
      colluders: how many of the others may pool what they know, where noise is to be shared.
      records: how many rows each agent will have in the end, where the tables go on growing while
        the network runs; those that the shortest has now are there before the first round.
      per_step: how many come with every round.
      run: its name.
      port: the first agent's; the others follow.
      secure: TLS with test certificates instead of plain TCP.
      notify: told what was counted in each table (for their owners), chosen and written.
    """
    config = folder / "net.toml"
    if config.exists():
        raise ValueError(f"{config} is there already: choose another folder")
    if len(tables) < 2:
        require.fail("tables", "two or more, one for each agent", [str(path) for path in tables])
    known, names = Schema.load(schema), _names(tables)
    for text in known.warnings:
        notify(f"{schema}: {text}")
    counted = [known.encode(path).counted for path in tables]
    held = [one.rows for one in counted]
    for line in dict.fromkeys(line for one in counted for line in one.lines):
        notify(line)
    network: dict[str, Any] = {"run": run, "state": "state"}
    problem: dict[str, Any] = {"schema": "schema.toml"}
    if records is not None:
        if require.count("records", records) <= max(held):
            require.fail("records", f"more than the {max(held)} rows that there are", records)
        network |= {"follow": True}
        problem |= {"head_start": min(held), "per_step": require.count("per_step", per_step)}
        held = [records] * len(tables)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(schema, folder / "schema.toml")
    parts: dict[str, Any] = {
        "network": network | ({"keys": "keys"} if secure else {}),
        "agents": _agents(names, tables, held, folder, "tls" if secure else "tcp", port),
        "problem": problem,
        "privacy": {"epsilon": epsilon, "delta": delta},
    }
    if colluders is not None:
        parts["secrets"] = {"colluders": colluders}
    text = _written(parts)
    write_atomically(config, text.encode())
    try:
        choose(config, notify)
    except BaseException:
        # What cannot be planned must not be in the way of the next attempt.
        config.unlink()
        (folder / "schema.toml").unlink()
        raise
    notify(f"wrote {config} for {', '.join(names)}")
    if secure:
        make_keys(folder / "keys", config)
        notify(f"wrote test certificates to {folder / 'keys'}")
    return config


def _names(tables: Sequence[Path]) -> list[str]:
    """Agents are named after their files."""
    names = [re.sub(r"[^A-Za-z0-9_-]", "-", path.stem) for path in tables]
    for name, path in zip(names, tables, strict=True):
        if not NAME.fullmatch(name) or name == "observer" or names.count(name) > 1:
            require.fail(
                "tables", "files whose names differ (agents are named after them)", str(path)
            )
    return names


def _agents(
    names: Sequence[str],
    tables: Sequence[Path],
    held: Sequence[int],
    folder: Path,
    protocol: str,
    port: int,
) -> Any:
    """A table for each."""
    import tomlkit

    found = tomlkit.table(is_super_table=True)
    for number, (name, path, rows) in enumerate(zip(names, tables, held, strict=True)):
        one = tomlkit.table()
        one.append("endpoint", f"{protocol}/127.0.0.1:{port + number}")
        one.append("data", tomlkit.item(os.path.relpath(path, folder)))
        one["data"].comment("on its own host")
        one.append("records", rows)
        found.append(name, one)
    return found


def _written(parts: Mapping[str, Any]) -> str:
    import tomlkit

    found = tomlkit.parse(_HEAD)
    for table, values in parts.items():
        found.append(table, values if table == "agents" else tomlkit.item(values))
    return found.as_string()

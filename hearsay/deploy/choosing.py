"""Settings of a net.toml that names none: every agent rehearses (tradeoff/rehearsing.py).

What enters a rehearsal is in net.toml, so that all agents arrive at the same settings. They count
as if they stood in the file: `Network.public` has them, its hash is in every message, and agents
that arrived at others are refused before anything is sent, in words that say which setting differs.
`hearsay network plan` writes them into the file, after which nobody rehearses any more.
"""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

from hearsay import _validate as require
from hearsay._files import write_atomically
from hearsay.config import TABLES, Config, toml_item
from hearsay.deploy.settings import Network

_WIDE = 96


def settled(network: Network) -> Network:
    """The network with settings chosen, where its file has none and says how private it is."""
    from hearsay.deploy.records import own
    from hearsay.tradeoff import settled as rule

    if not rule.unsettled(network.config) or "epsilon" not in network.config.privacy:
        return network
    config = rule.described(network.config, len(network.members))
    task = own(replace(network, config=config), None).task
    if not rule.rehearsable(task):
        return network
    written, found = rule.settled(config, task, follow=network.follow)
    if network.policy == "skip":
        # Its weights are for a matrix of which nothing is missing.
        written = written.without("algorithm", "chebyshev")
    return replace(network, config=written, chosen=found)


def write(path: str | Path, network: Network) -> None:
    """Write the settings that were chosen into the network's file; what is there stays as it is,
    comments too.

    Args:
      path: of net.toml.
      network: as `settings.load` read it from there.
    """
    import tomlkit

    if network.chosen is None:
        require.fail(
            f"[algorithm] in {path}",
            "left out (and steps in [run], head_start and per_step in [problem]) with epsilon in"
            " [privacy], for settings to be chosen",
            dict(network.config.algorithm),
        )
    found = tomlkit.parse(Path(path).read_text(encoding="utf-8"))
    for table in TABLES:
        values = _new(table, network.config, found)
        if not values:
            continue
        if table in found and len(found[table]):  # type: ignore[arg-type]
            for key, value in values.items():
                found[table].append(key, toml_item(value))  # type: ignore[union-attr]
            continue
        whole = tomlkit.table()
        if table == "algorithm":
            for line in textwrap.wrap(network.chosen.words, _WIDE):
                whole.add(tomlkit.comment(line))
        for key, value in values.items():
            whole.append(key, toml_item(value))
        whole.add(tomlkit.nl())
        found[table] = whole
    write_atomically(Path(path), found.as_string().encode())


def _new(table: str, config: Config, found: dict) -> dict:
    """What was chosen for a table and is not in the file."""
    there = {*found.get(table, {})}
    if table == "problem":
        # [privacy] may say it as well.
        there |= {"adjacency"} & {*found.get("privacy", {})}
    return {key: value for key, value in getattr(config, table).items() if key not in there}

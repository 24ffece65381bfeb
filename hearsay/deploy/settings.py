"""net.toml: who takes part, who hears whom, and what they compute, in one file of which every agent
holds a copy.

    [network]       run = "wards" (a new name for every run), policy = "wait" or "skip", deadline
                    and patience (seconds), keys (a folder of certificates), state (a folder),
                    keep (bytes of messages that are kept for neighbours that are away), follow
                    (records arrive while the network runs: following.py)
    [agents.NAME]   endpoint = "tls/host:port", records (how many the agent has: public),
                    data (a file on ITS host), state, certificate, key
    [problem] [graph] [algorithm] [privacy] [run]
                    as for `hearsay run` (config/); edges may name agents:
                    edges = [["alice", "bob", 0.3], ...]
    [secrets]       noise that pairs of agents share, as for `hearsay run`; its edges may name
                    agents too

Agents are numbered in the order of their tables. With `records` every agent reads its own file, and
[problem] needs what nobody can read off a file that is not there: `schema` where files are tables
(the path of a schema.toml, of which every agent has a copy), and otherwise `dimension` and
`feature_bound` (and `label_bound` for regression, `classes` for softmax; `shape` and `classes` for
neural networks). Without, all take their share of the public data set that [problem] names: for
trying out.

Without [algorithm], and without `steps`, `head_start` and `per_step`, settings are chosen by
rehearsal for `epsilon` in [privacy] (choosing.py).

[privacy] may also have `lifetime`: what records may spend in all runs together (lifetime.py).

What must be the same everywhere is `Network.public`; its hash is in every message. Endpoints,
paths, deadlines and lifetimes are each agent's own business.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearsay import _validate as require
from hearsay.config import PRIVACY_KEYS as RUN_PRIVACY_KEYS
from hearsay.config import SIMULATED, TABLES, Config, require_planned
from hearsay.deploy.links import Credentials, Peer, valid_endpoint
from hearsay.tables.schema import Schema

if TYPE_CHECKING:
    from hearsay.tradeoff import Rehearsal

SCHEMA = 1
POLICIES = ("wait", "skip")
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NETWORK_KEYS = ("run", "policy", "deadline", "patience", "keys", "state", "keep", "follow")
PRIVACY_KEYS = ("lifetime",)  # besides those of `hearsay run`; each agent's own business
_AGENT_KEYS = ("endpoint", "records", "data", "state", "certificate", "key", "ca")
_QUOTED = 200
# Where to compute, and which average to release, is each agent's own business.
_LOCAL_RUN_KEYS = ("device", "release")


@dataclass(frozen=True)
class Member:
    """One agent's table."""

    name: str
    endpoint: str
    records: int | None
    data: Path | None
    state: Path
    credentials: Credentials | None

    def __post_init__(self) -> None:
        require.settle(self, records=require.optional(require.count))

    @property
    def peer(self) -> Peer:
        return Peer(self.name, self.endpoint)

    def require_folder(self) -> None:
        """Where its runs are kept is a folder or can be made one: no waiting mends that."""
        for place in (self.state, *self.state.parents):
            if os.path.lexists(place) and not os.path.isdir(place):
                raise ValueError(
                    f"state of {self.name} must be a folder, got a file: {place} is in the way of"
                    f" {self.state}"
                )

    @property
    def ledger(self) -> Path:
        return self.state / f"{self.name}.ledger"

    @property
    def averages(self) -> Path:
        """Averages of what it has sent and heard: nothing private (averages.py)."""
        return self.state / f"{self.name}.averages"

    @property
    def spent(self) -> Path:
        """What its records have spent in all runs: beside the runs' folders."""
        return self.state.parent / f"{self.name}.budget"


@dataclass(frozen=True)
class Network:
    """A net.toml that has been read and checked."""

    run: str
    members: tuple[Member, ...]
    config: Config
    policy: str = "wait"
    deadline: float = 300.0
    patience: float = 5.0
    keys: Path | None = None
    state: Path = Path("state")
    keep: int = 10 * 2**30
    lifetime: tuple[float, ...] | None = None
    follow: bool = False
    chosen: Rehearsal | None = None  # the settings, where the file has none (choosing.py)

    def __post_init__(self) -> None:
        require.settle(self, deadline=require.positive, patience=require.positive)

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.members]

    def index(self, name: str) -> int:
        return self.names.index(require.one_of("name", name, self.names))

    @property
    def from_files(self) -> bool:
        """Agents read their records from files of their own."""
        return self.members[0].records is not None

    @property
    def precision(self) -> int:
        return self.config.run.get("precision", 64)

    @cached_property
    def public(self) -> dict[str, Any]:
        """What all agents must agree on, as JSON knows it."""
        config, problem = (
            self.config,
            {k: v for k, v in self.config.problem.items() if k != "data_dir"},
        )
        if "schema" in problem:
            # Its content, wherever a host keeps it. JSON's hash forgets an order that records have.
            tables = problem["schema"]
            problem["schema"] = {**tables, "order": list(tables["columns"])}
        found = {
            "schema": SCHEMA,
            "run": self.run,
            "agents": self.names,
            "records": [member.records for member in self.members],
            "policy": self.policy,
            "problem": problem,
            "graph": config.graph,
            "algorithm": config.algorithm,
            "privacy": config.privacy,
            "steps": config.steps,
            "precision": self.precision,
        }
        # Networks without them keep the hash that they had.
        found |= {"secrets": config.secrets} if config.secrets else {}
        found |= {"follow": True} if self.follow else {}
        return json.loads(json.dumps(found))

    @cached_property
    def digest(self) -> str:
        """The hash that every message carries."""
        return hashlib.sha256(json.dumps(self.public, sort_keys=True).encode()).hexdigest()

    @property
    def observer(self) -> Credentials | None:
        """The certificate with which `hearsay network status` asks."""
        return None if self.keys is None else _credentials(self.keys, "observer", {}, self.keys)


def load(path: str | Path, allowed: Sequence[str] = (), *, settle: bool = True) -> Network:
    """The network in that file.

    Args:
      path: of net.toml.
      allowed: the places ("package.module:Class") that [algorithm] may import (config/).
      settle: choose settings where the file has none (choosing.py), which takes a while the first
        time; without them there is no plan, and the hash is not that of messages.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there: hearsay network init makes one to start from"
        )
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
    found = read(tables, path.parent)
    found = replace(found, config=found.config.allowing(*allowed))
    if not settle:
        return found
    from hearsay.deploy.choosing import settled

    return settled(found)


def read(tables: Mapping[str, Any], folder: Path) -> Network:
    """From parsed tables; paths are taken from `folder` on."""
    # What goes wrong on a real network, or what it costs, is not for its file to say.
    known = ["network", "agents", *(name for name in TABLES if name not in SIMULATED)]
    for name, table in tables.items():
        require.one_of("table in net.toml", name, known)
        if not isinstance(table, dict):
            require.fail(f"{name} in net.toml", "a table of keys", table)
    network = _known("[network]", tables.get("network", {}), _NETWORK_KEYS)
    run = network.get("run")
    if not isinstance(run, str) or not NAME.fullmatch(run):
        require.fail(
            "run in [network]", "a name of letters, digits, - and _ (a new one for every run)", run
        )
    keys = _path("keys in [network]", network.get("keys"), folder)
    state = (_path("state in [network]", network.get("state", "state"), folder) or folder) / run
    agents = tables.get("agents", {})
    if len(agents) < 2:
        require.fail("[agents.NAME]", "two or more tables, one for each agent", sorted(agents))
    members = tuple(_member(name, table, folder, state, keys) for name, table in agents.items())
    _require_distinct(members)
    found = Network(
        run,
        members,
        _config(tables, [m.name for m in members], members[0].records is not None, folder),
        require.one_of("policy in [network]", network.get("policy", "wait"), POLICIES),
        require.positive("deadline in [network]", network.get("deadline", 300.0)),
        require.positive("patience in [network]", network.get("patience", 5.0)),
        keys,
        state,
        require.count("keep in [network]", network.get("keep", Network.keep)),
        _lifetime(tables.get("privacy", {}), len(members)),
        _follow(network.get("follow", False), members, tables),
    )
    return found


def _follow(given: Any, members: tuple[Member, ...], tables: Mapping[str, Any]) -> bool:
    if not require.flag("follow in [network]", given):
        return False
    if members[0].records is None:
        raise ValueError(
            "records in [agents.NAME] must be given with follow in [network]: how many will have"
            " arrived in the end"
        )
    if "schema" in (problem := tables.get("problem", {})) and "head_start" not in problem:
        raise ValueError(
            "head_start in [problem] must be given with a schema and follow in [network]: unless it"
            " is, all records of a table are there before step 0, and the first round would wait"
            " for the last of them"
        )
    return True


def _lifetime(privacy: Mapping[str, Any], agents: int) -> tuple[float, ...] | None:
    if "lifetime" not in privacy:
        return None
    return tuple(require.per_agent("lifetime in [privacy]", privacy["lifetime"], agents))


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """The first thing in which two public configurations differ, in words."""
    for key in (*ours, *(k for k in theirs if k not in ours)):
        here, there = ours.get(key), theirs.get(key)
        if _same(here, there):
            continue
        if isinstance(here, dict) and isinstance(there, dict):
            return f"[{_key(key)}] {_inner(here, there)}"
        return f"{_key(key)} is {_quoted(here)} here and {_quoted(there)} there"
    return "nothing"


def _inner(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """The first key in which two tables differ, that of a table in them after a point."""
    key = next(
        k
        for k in (*ours, *theirs)
        if k not in ours or k not in theirs or not _same(ours[k], theirs[k])
    )
    here, there = ours.get(key), theirs.get(key)
    if isinstance(here, dict) and isinstance(there, dict):
        return f"{_key(key)}.{_inner(here, there)}"
    return f"{_key(key)} is {_quoted(here)} here and {_quoted(there)} there"


def _key(name: str) -> str:
    return name if NAME.fullmatch(name) else _quoted(name)


def _quoted(value: Any) -> str:
    """For a log: a neighbour's words are no longer than that, and stay on their line."""
    text = repr(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]} ..."


def _same(here: Any, there: Any) -> bool:
    """As the hash has it: 5 and 5.0 differ."""
    return json.dumps(here, sort_keys=True) == json.dumps(there, sort_keys=True)


def _member(name: str, table: Any, folder: Path, state: Path, keys: Path | None) -> Member:
    where = f"[agents.{name}]"
    if not NAME.fullmatch(name) or name == "observer":
        require.fail("the name of an agent", "letters, digits, - and _ (and not observer)", name)
    table = _known(where, table, _AGENT_KEYS)
    endpoint = valid_endpoint(f"endpoint in {where}", table.get("endpoint"))
    secure, own = (
        endpoint.startswith("tls/"),
        {k: table[k] for k in ("certificate", "key", "ca") if k in table},
    )
    if secure and keys is None and len(own) < 3:
        raise ValueError(
            f"keys in [network] must name a folder of certificates, because {where} has a tls"
            " endpoint: hearsay network keys makes one for trying out"
        )
    if not secure and (keys is not None or own):
        whose = "[network] has keys" if keys is not None else f"the agent has a {next(iter(own))}"
        raise ValueError(
            f"endpoint in {where} must begin with tls/, because {whose}, got {endpoint!r}"
        )
    paths = {
        key: _path(f"{key} in {where}", table.get(key), folder) for key in ("data", "state", *own)
    }
    return Member(
        name,
        endpoint,
        None
        if table.get("records") is None
        else require.count(f"records in {where}", table["records"]),
        paths["data"],
        state if paths["state"] is None else paths["state"] / state.name,
        _credentials(keys, name, own, folder) if secure else None,
    )


def _credentials(keys: Path | None, name: str, own: Mapping[str, str], folder: Path) -> Credentials:
    usual = {"ca": "ca.pem", "certificate": f"{name}.pem", "key": f"{name}.key"}
    return Credentials(
        **{k: folder / own[k] if k in own else (keys or folder) / file for k, file in usual.items()}
    )


def _require_distinct(members: tuple[Member, ...]) -> None:
    seen: dict[str, str] = {}
    for member in members:
        if member.endpoint in seen:
            raise ValueError(
                f"agents {seen[member.endpoint]} and {member.name} have the same endpoint"
                f" {member.endpoint}"
            )
        seen[member.endpoint] = member.name
    if len({member.credentials is None for member in members}) > 1:
        raise ValueError("endpoints must be tls for all agents, or for none")
    without = [member.name for member in members if member.records is None]
    if without and len(without) < len(members):
        require.fail(
            "records", "given for every agent or for none", f"none for {', '.join(without)}"
        )


def _config(tables: Mapping[str, Any], names: list[str], from_files: bool, folder: Path) -> Config:
    graph, problem = dict(tables.get("graph", {})), dict(tables.get("problem", {}))
    require_planned(tables)
    secrets = dict(tables.get("secrets", {}))
    for where, table in (("[graph]", graph), ("[secrets]", secrets)):
        if "edges" in table:
            table["edges"] = _numbered_edges(f"edges in {where}", table["edges"], names)
    if "schema" in problem:
        if not from_files:
            raise ValueError(
                "records in [agents.NAME] must be given with a schema: how many rows each agent's"
                " table has"
            )
        place = _path("schema in [problem]", problem["schema"], folder)
        problem["schema"] = Schema.load(place or folder).tables
    for key in ("agents", *(("data", "partition", "test") if from_files else ())):
        if key in problem:
            raise ValueError(
                f"{key} in [problem] must be left out: the [agents.NAME] tables say it"
            )
    run = dict(tables.get("run", {}))
    for key in run:
        require.one_of("key in [run]", key, ("steps", "precision", *_LOCAL_RUN_KEYS))
    privacy = _known("[privacy]", tables.get("privacy", {}), (*RUN_PRIVACY_KEYS, *PRIVACY_KEYS))
    privacy = {key: value for key, value in privacy.items() if key not in PRIVACY_KEYS}
    return Config(problem, graph, tables.get("algorithm", {}), privacy, run, secrets)


def _numbered_edges(where: str, edges: Any, names: list[str]) -> list[list[Any]]:
    """With agents by their numbers, where the file names them."""
    numbered = {name: number for number, name in enumerate(names)}
    if not isinstance(edges, list) or not all(isinstance(edge, list) for edge in edges):
        require.fail(where, "a list of pairs of agents, or of triples with a weight", edges)

    def number(end: Any) -> Any:
        return numbered[require.one_of(where, end, numbered)] if isinstance(end, str) else end

    return [[*map(number, edge[:2]), *edge[2:]] for edge in edges]


def _path(where: str, given: Any, folder: Path) -> Path | None:
    if given is not None and not isinstance(given, str):
        require.fail(where, "a path", given)
    return None if given is None else folder / given


def _known(where: str, table: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(table, dict):
        require.fail(where, "a table of keys", table)
    for key in table:
        require.one_of(f"key in {where}", key, keys)
    return table

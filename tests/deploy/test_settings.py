"""net.toml: every mistake is named, and the hash covers what must be the same everywhere
and nothing else.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from hearsay.deploy import launch
from hearsay.deploy.launch import initialise
from hearsay.deploy.settings import Network, difference, load, read

HERE = Path("/somewhere")


def tables(**network: Any) -> dict[str, Any]:
    return {
        "network": {"run": "wards", **network},
        "agents": {
            name: {"endpoint": f"tcp/127.0.0.1:{7000 + i}"}
            for i, name in enumerate(("alice", "bob", "carol"))
        },
        "problem": {"loss": "ridge", "records": 20, "dimension": 2, "data_dir": "/data"},
        "graph": {"edges": [["alice", "bob", 0.25], ["bob", "carol", 0.25]]},
        "algorithm": {"name": "ldp-online", "step": "0.5*(k+1)^-0.8"},
        "privacy": {"epsilon": 5.0, "delta": 1e-5},
        "run": {"steps": 30, "device": "cpu"},
    }


def changed(*path: str, to: Any, base: dict[str, Any] | None = None) -> dict[str, Any]:
    """The tables with one key replaced; None takes it out."""
    found = copy.deepcopy(tables() if base is None else base)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return found


def secure() -> dict[str, Any]:
    found = tables(keys="keys")
    for agent in found["agents"].values():
        agent["endpoint"] = agent["endpoint"].replace("tcp/", "tls/")
    return found


def test_everything_is_read():
    given = tables(policy="skip", deadline=20, patience=0.5, state="elsewhere")
    given["agents"]["bob"] |= {"data": "bob.npz", "state": "/bob"}
    network = read(given, HERE)
    assert (network.run, network.policy, network.deadline, network.patience) == (
        "wards",
        "skip",
        20.0,
        0.5,
    )
    assert network.names == ["alice", "bob", "carol"]
    assert [network.index(name) for name in network.names] == [0, 1, 2]
    alice, bob, _ = network.members
    assert (alice.data, alice.state, alice.ledger) == (
        None,
        HERE / "elsewhere" / "wards",
        HERE / "elsewhere" / "wards" / "alice.ledger",
    )
    assert (bob.data, bob.state, bob.credentials) == (HERE / "bob.npz", Path("/bob/wards"), None)
    assert (bob.peer.name, bob.peer.endpoint) == ("bob", "tcp/127.0.0.1:7001")
    assert network.config.graph["edges"] == [[0, 1, 0.25], [1, 2, 0.25]]
    assert not network.from_files
    assert network.observer is None
    with pytest.raises(
        ValueError, match="name must be one of alice, bob, carol, got 'bobb'; did you mean 'bob'"
    ):
        network.index("bobb")


def test_defaults():
    network = read(tables(), HERE)
    assert (network.policy, network.deadline, network.patience) == ("wait", 300.0, 5.0)
    assert (network.keys, network.state) == (None, HERE / "state" / "wards"), (
        "a new name is a new ledger"
    )
    assert (network.keep, network.lifetime) == (10 * 2**30, None)
    assert network.members[0].spent == HERE / "state" / "alice.budget", "beside the runs' folders"


def test_certificates_come_from_the_folder_of_keys_or_from_the_agent():
    given = secure()
    given["agents"]["bob"] |= {"key": "/etc/bob.key"}
    network = read(given, HERE)
    alice, bob = (member.credentials for member in network.members[:2])
    assert alice is not None
    assert bob is not None
    assert (alice.ca, alice.certificate, alice.key) == tuple(
        HERE / "keys" / f for f in ("ca.pem", "alice.pem", "alice.key")
    )
    assert (bob.certificate, bob.key) == (HERE / "keys" / "bob.pem", Path("/etc/bob.key"))
    observer = network.observer
    assert observer is not None
    assert observer.key == HERE / "keys" / "observer.key"


def test_certificates_may_all_be_the_agents_own():
    given = secure()
    del given["network"]["keys"]
    for name, agent in given["agents"].items():
        agent |= {"ca": "ca.pem", "certificate": f"{name}.pem", "key": f"{name}.key"}
    found = read(given, HERE).members[2].credentials
    assert found is not None
    assert (found.ca, found.key) == (HERE / "ca.pem", HERE / "carol.key")


@pytest.mark.parametrize(
    ("path", "to", "message"),
    [
        (
            ["netwrk"],
            {},
            (
                r"table in net.toml must be one of network, agents, .* got 'netwrk'; did you mean"
                r" 'network'"
            ),
        ),
        (["run"], 5, "run in net.toml must be a table of keys, got 5"),
        (
            ["network", "polcy"],
            1,
            r"key in \[network\] must be one of run, .* got 'polcy'; did you mean 'policy'",
        ),
        (
            ["network", "policy"],
            "wiat",
            r"policy in \[network\] must be one of wait, skip, got 'wiat'; did you mean 'wait'",
        ),
        (["network", "deadline"], 0, r"deadline in \[network\] must be positive, got 0"),
        (["network", "patience"], -1.5, r"patience in \[network\] must be positive, got -1.5"),
        (["network", "keep"], 0, r"keep in \[network\] must be at least 1, got 0"),
        (
            ["privacy", "lifetme"],
            4,
            r"key in \[privacy\] must be one of .*, got 'lifetme'; did you mean 'lifetime'",
        ),
        (["privacy", "lifetime"], -1.0, r"lifetime in \[privacy\] must be positive, got -1"),
        (
            ["privacy", "lifetime"],
            [1.0, 2.0],
            r"lifetime in \[privacy\] must be one number, or one for each of the 3 agents",
        ),
        (["network", "keys"], 7, r"keys in \[network\] must be a path, got 7"),
        (["network", "state"], 7, r"state in \[network\] must be a path, got 7"),
        (["network", "run"], None, r"run in \[network\] must be a name of letters.*got None"),
        (["network", "run"], "", r"run in \[network\] must be .* got ''"),
        (["network", "run"], "a/b", r"run in \[network\] must be .* got 'a/b'"),
        (["network", "run"], "a*", r"run in \[network\] must be .* got 'a\*'"),
        (["network", "run"], "x" * 65, r"run in \[network\] must be .* got 'xxx"),
        (["network", "run"], 5, r"run in \[network\] must be .* got 5"),
        (
            ["agents"],
            {"alice": {"endpoint": "tcp/h:1"}},
            r"\[agents.NAME\] must be two or more tables.*got \['alice'\]",
        ),
        (["agents", "bob"], 5, r"\[agents.bob\] must be a table of keys, got 5"),
        (
            ["agents", "observer"],
            {},
            "the name of an agent must be letters.*not observer.*got 'observer'",
        ),
        (["agents", "a b"], {}, "the name of an agent must be letters.*got 'a b'"),
        (["agents", "a/b"], {}, "the name of an agent must be letters.*got 'a/b'"),
        (["agents", "müller"], {}, "the name of an agent must be letters.*got 'müller'"),
        (["agents", ".."], {}, "the name of an agent must be letters.*got '..'"),
        (
            ["agents", "bob", "endpont"],
            "x",
            r"key in \[agents.bob\] must be one of .* got 'endpont'; did you mean 'endpoint'",
        ),
        (["agents", "bob", "data"], 5, r"data in \[agents.bob\] must be a path, got 5"),
        (["agents", "bob", "state"], 5, r"state in \[agents.bob\] must be a path, got 5"),
        (["agents", "bob", "records"], 0, r"records in \[agents.bob\] must be at least 1, got 0"),
        (
            ["agents", "bob", "records"],
            20,
            "records must be given for every agent or for none, got 'none for alice, carol'",
        ),
        (
            ["graph", "edges"],
            [["alice", "bbo"]],
            r"edges in \[graph\] must be one of alice, .* got 'bbo'; did you mean 'bob'",
        ),
        (
            ["graph", "edges"],
            [5],
            r"edges in \[graph\] must be a list of pairs of agents.*got \[5\]",
        ),
        (
            ["graph", "edges"],
            "alice",
            r"edges in \[graph\] must be a list of pairs of agents.*got 'alice'",
        ),
        (
            ["problem", "agents"],
            3,
            r"agents in \[problem\] must be left out: the \[agents.NAME\] tables say it",
        ),
        (
            ["run", "seeds"],
            3,
            r"key in \[run\] must be one of steps, precision, device, release, got 'seeds'",
        ),
        (["run", "step"], 3, r"key in \[run\] must be .* got 'step'; did you mean 'steps'"),
        (["run", "steps"], 0, "steps must be at least 1, got 0"),
        (["run", "precision"], 16, "precision must be 32 or 64, got 16"),
        (["privacy", "epsilno"], 3, r"key in \[privacy\] must be one of .* did you mean 'epsilon'"),
        (["privacy", "epsilon"], -3, r"epsilon in \[privacy\] must be positive, got -3"),
    ],
)
def test_mistakes_name_the_key_the_rule_and_the_value(path, to, message):
    with pytest.raises(ValueError, match=message):
        read(changed(*path, to=to), HERE)


@pytest.mark.parametrize(
    ("path", "to", "message"),
    [
        (["network", "deadline"], "soon", r"deadline in \[network\] must be a number, got 'soon'"),
        (
            ["agents", "bob", "records"],
            2.5,
            r"records in \[agents.bob\] must be a whole number, got 2.5",
        ),
        (
            ["agents", "bob", "records"],
            True,
            r"records in \[agents.bob\] must be a whole number, got True",
        ),
    ],
)
def test_wrong_types_are_named(path, to, message):
    with pytest.raises(TypeError, match=message):
        read(changed(*path, to=to), HERE)


@pytest.mark.parametrize(
    "endpoint",
    [
        None,
        5,
        "",
        "127.0.0.1:7447",
        "udp/127.0.0.1:7447",
        "tcp/127.0.0.1",
        "tcp/:7447",
        "tcp/h:port",
        "tcp/h:7447 ",
        "tcp/h:0",
        "tcp/h:65536",
        "tcp/h:7447?rel=0",
        "tcp/h#iface=lo:7447",
        "tcp/a b:7447",
        "TCP/h:7447",
    ],
)
def test_bad_endpoints(endpoint):
    with pytest.raises(
        ValueError,
        match=(
            r'endpoint in \[agents.bob\] must be like "tcp/127.0.0.1:7447" or'
            r' "tls/bob.example:7447", got '
        ),
    ):
        read(changed("agents", "bob", "endpoint", to=endpoint), HERE)


@pytest.mark.parametrize(
    "endpoint", ["tcp/ward-3.example.org:7447", "tcp/[::1]:7447", "tcp/h:65535"]
)
def test_good_endpoints(endpoint):
    assert (
        read(changed("agents", "bob", "endpoint", to=endpoint), HERE).members[1].peer.endpoint
        == endpoint
    )


def test_an_ipv6_address_is_refused_under_tls():
    """Zenoh would accept it, listen on it, and never connect to it.

    To listen everywhere is another matter.
    """
    for endpoint in ("tls/[2001:db8::5]:7447", "tls/[::1]:7447"):
        with pytest.raises(
            ValueError,
            match=(
                r"endpoint in \[agents.bob\] must be a host name and a port under TLS, where Zenoh"
                r" connects to no IPv6"
            ),
        ):
            read(changed("agents", "bob", "endpoint", to=endpoint), HERE)
    given = secure()
    given["agents"]["bob"]["endpoint"] = "tls/[::]:7447"
    assert read(given, HERE).members[1].peer.host == "[::]"


def test_what_a_neighbour_says_of_its_configuration_is_cut():
    ours = read(tables(), HERE).public
    for theirs in (
        {**ours, "steps": "x" * 10**6},
        {**ours, "privacy": {**ours["privacy"], "y" * 10**6: 1}},
        {**ours, "z\n" * 10**6: 1},
    ):
        said = difference(ours, theirs)
        assert len(said) < 700 and "\n" not in said and " ..." in said


def test_tls_needs_keys():
    with pytest.raises(
        ValueError,
        match=r"keys in \[network\] must name a folder.*\[agents.alice\] has a tls endpoint",
    ):
        read(changed("network", "keys", to=None, base=secure()), HERE)
    given = changed("network", "keys", to=None, base=secure())
    given["agents"]["alice"] |= {"key": "k", "certificate": "c"}  # but no ca
    with pytest.raises(
        ValueError, match=r"keys in \[network\] must name a folder.*\[agents.alice\]"
    ):
        read(given, HERE)


def test_plain_endpoints_have_no_use_for_keys():
    with pytest.raises(
        ValueError,
        match=r"endpoint in \[agents.alice\] must begin with tls/, because \[network\] has keys",
    ):
        read(tables(keys="keys"), HERE)
    with pytest.raises(
        ValueError,
        match=r"endpoint in \[agents.bob\] must begin with tls/.*has a key, got 'tcp/127",
    ):
        read(changed("agents", "bob", "key", to="bob.key"), HERE)


def test_all_are_secure_or_none():
    given = tables()
    given["agents"]["carol"] = {"endpoint": "tls/h:7447", "ca": "a", "certificate": "b", "key": "c"}
    with pytest.raises(ValueError, match="endpoints must be tls for all agents, or for none"):
        read(given, HERE)


def test_two_agents_cannot_share_an_endpoint():
    with pytest.raises(
        ValueError, match="agents alice and carol have the same endpoint tcp/127.0.0.1:7000"
    ):
        read(changed("agents", "carol", "endpoint", to="tcp/127.0.0.1:7000"), HERE)


def with_records(counts=(20, 30, 40)) -> dict[str, Any]:
    given = tables()
    given["problem"] = {"loss": "logistic", "dimension": 2, "feature_bound": 1.0}
    for agent, count in zip(given["agents"].values(), counts, strict=True):
        agent["records"] = count
    return given


@pytest.mark.parametrize("key", ["agents", "data", "partition"])
def test_records_of_their_own_leave_nothing_to_deal_out(key):
    assert read(with_records(), HERE).from_files
    with pytest.raises(
        ValueError,
        match=rf"{key} in \[problem\] must be left out: the \[agents.NAME\] tables say it",
    ):
        read(changed("problem", key, to="x", base=with_records()), HERE)


def digest(given: dict[str, Any], folder: Path = HERE) -> str:
    return read(given, folder).digest


def test_the_hash_is_that_of_a_name_or_number_alike_and_of_any_order_of_keys():
    assert digest(tables()) == digest(tables())
    assert len(digest(tables())) == 64
    assert digest(changed("graph", "edges", to=[[0, 1, 0.25], ["bob", 2, 0.25]])) == digest(
        tables()
    )
    given = tables()
    turned = {
        name: dict(reversed(table.items())) if name != "agents" else table
        for name, table in reversed(given.items())
    }
    assert digest(turned) == digest(given)


def reordered() -> dict[str, Any]:
    given = changed("graph", "edges", to=[[0, 1, 0.25], [1, 2, 0.25]])
    given["agents"] = {name: given["agents"][name] for name in ("bob", "alice", "carol")}
    return given


SHARED = {
    "run": changed("network", "run", to="wards-2"),
    "policy": changed("network", "policy", to="skip"),
    "steps": changed("run", "steps", to=31),
    "precision": changed("run", "precision", to=32),
    "schedule": changed("algorithm", "step", to="0.6*(k+1)^-0.8"),
    "algorithm": changed("algorithm", "name", to="dsgd"),
    "noise": changed("algorithm", "noise", to=3.0),
    "a weight": changed("graph", "edges", to=[[0, 1, 0.25], [1, 2, 0.2]]),
    "an edge": changed("graph", "edges", to=[[0, 1, 0.25], [1, 2, 0.25], [0, 2, 0.25]]),
    "adjacency": changed("privacy", "adjacency", to="zero-out"),
    "epsilon": changed("privacy", "epsilon", to=5.5),
    "delta": changed("privacy", "delta", to=1e-6),
    "budget": changed("privacy", "budget", to=5.5),
    "problem": changed("problem", "ridge", to=0.5),
    "seed": changed("problem", "seed", to=1),
    "a name": changed("agents", "dora", to={"endpoint": "tcp/h:9"}),
    "who is who": reordered(),
}


@pytest.mark.parametrize("what", SHARED)
def test_the_hash_changes_with_what_all_must_agree_on(what):
    ours, theirs = read(tables(), HERE), read(SHARED[what], HERE)
    assert ours.digest != theirs.digest
    assert difference(ours.public, theirs.public) != "nothing"


def test_adjacency_may_stand_in_either_table_and_is_the_problems():
    either = [changed(table, "adjacency", to="zero-out") for table in ("privacy", "problem")]
    one, other = (read(given, HERE) for given in either)
    assert one.digest == other.digest
    assert one.config.problem["adjacency"] == "zero-out" and "adjacency" not in one.config.privacy
    twice = changed("problem", "adjacency", to="replace", base=either[0])
    with pytest.raises(
        ValueError, match=r"adjacency in \[privacy\] must be 'replace', as \[problem\] has it"
    ):
        read(twice, HERE)


def test_the_hash_changes_with_how_many_records_anybody_has():
    assert digest(with_records()) != digest(with_records((20, 30, 41)))
    assert digest(with_records()) != digest(with_records((30, 20, 40)))


OWN = {
    "endpoint": changed("agents", "bob", "endpoint", to="tcp/other.example:1"),
    "data": changed("agents", "bob", "data", to="elsewhere.csv"),
    "state": changed("agents", "bob", "state", to="elsewhere"),
    "state of all": changed("network", "state", to="elsewhere"),
    "deadline": changed("network", "deadline", to=7),
    "patience": changed("network", "patience", to=7),
    "keep": changed("network", "keep", to=7),
    "lifetime": changed("privacy", "lifetime", to=7.5),
    "device": changed("run", "device", to="gpu"),
    "no device": changed("run", "device", to=None),
    "data_dir": changed("problem", "data_dir", to="/other"),
    "keys": secure(),
}


@pytest.mark.parametrize("what", OWN)
def test_the_hash_does_not_change_with_what_is_an_agents_own_business(what):
    assert digest(OWN[what]) == digest(tables())
    assert difference(read(tables(), HERE).public, read(OWN[what], HERE).public) == "nothing"


def test_the_hash_does_not_depend_on_the_folder():
    assert digest(tables(), Path("/elsewhere")) == digest(tables())


def test_the_hash_is_the_one_of_yesterday():
    """Agents of different versions compare it: it may change only together with the schema."""
    assert digest(tables()) == "76d1730dcaab95019459cdb675007951e953d310e9e1f7ca173dcc3c7cbe7f90"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("steps", "steps is 30 here and 31 there"),
        ("run", "run is 'wards' here and 'wards-2' there"),
        (
            "who is who",
            "agents is ['alice', 'bob', 'carol'] here and ['bob', 'alice', 'carol'] there",
        ),
        ("schedule", "[algorithm] step is '0.5*(k+1)^-0.8' here and '0.6*(k+1)^-0.8' there"),
        ("noise", "[algorithm] noise is None here and 3.0 there"),
        ("epsilon", "[privacy] epsilon is 5.0 here and 5.5 there"),
        ("policy", "policy is 'wait' here and 'skip' there"),
    ],
)
def test_the_first_difference_is_named(what, said):
    assert difference(read(tables(), HERE).public, read(SHARED[what], HERE).public) == said


def test_a_difference_that_only_the_hash_sees_is_named_too():
    """5 == 5.0 in Python, and not in JSON. A budget is a float however it is written."""
    ours, theirs = (read(changed("algorithm", "noise", to=noise), HERE) for noise in (5.0, 5))
    assert ours.digest != theirs.digest
    assert difference(ours.public, theirs.public) == "[algorithm] noise is 5.0 here and 5 there"
    assert read(changed("privacy", "epsilon", to=5), HERE).digest == read(tables(), HERE).digest


def test_what_another_agent_claims_cannot_break_the_comparison():
    ours = read(tables(), HERE).public
    assert difference(ours, {}) == "schema is 1 here and None there"
    assert (
        difference(ours, {**ours, "graph": {**ours["graph"], "x": None}})
        == "[graph] x is None here and None there"
    )
    assert difference(ours, {**ours, "graph": 5}).startswith("graph is {")
    assert difference(ours, {**ours, "more": 1}) == "more is None here and 1 there"
    assert difference(ours, dict(reversed(ours.items()))) == "nothing"


NET = """
[network]
run = "wards"
[agents.alice]
endpoint = "tcp/127.0.0.1:7000"
[agents.bob]
endpoint = "tcp/127.0.0.1:7001"
data = "bob.npz"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "net.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_load_takes_paths_from_where_the_file_is(tmp_path):
    network = load(str(written(tmp_path, NET)))
    assert isinstance(network, Network)
    assert network.names == ["alice", "bob"]
    assert (network.members[1].data, network.state) == (
        tmp_path / "bob.npz",
        tmp_path / "state" / network.run,
    )


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"none\.toml is not there: hearsay network init makes one to start from",
    ):
        load(tmp_path / "none.toml")
    with pytest.raises(FileNotFoundError, match="is not there"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[network\n", "net.toml is not valid TOML: .*line 1"),
        (NET + 'run = "twice"\nrun = "twice"', "net.toml is not valid TOML"),
        ('run = "wards"', "run in net.toml must be a table of keys, got 'wards'"),
        (
            '[network]\nrun = "wards"',
            r"\[agents.NAME\] must be two or more tables, one for each agent, got \[\]",
        ),
        ("", r"run in \[network\] must be a name of letters"),
    ],
)
def test_bad_files_are_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load(written(tmp_path, text))


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "net.toml").write_bytes(b'\xff\xfe[network]\nrun = "wards"')
    with pytest.raises(ValueError, match=r"net.toml is not valid TOML"):
        load(tmp_path / "net.toml")


def test_a_first_net_toml_is_the_starter_filled_in(tmp_path):
    """Comments, spaces and order are those of starter.toml; only values differ."""
    plain = initialise(tmp_path / "plain", agents=2, port=9000, steps=7, secure=False).read_text()
    text = initialise(tmp_path / "tls", agents=12, run="other", epsilon=2.5, steps=200).read_text()
    starter = (Path(launch.__file__).parent / "starter.toml").read_text()
    head, _, rest = starter.partition("[agents.NAME]")
    _, _, tail = rest.partition("\n\n")
    assert text.startswith(head.replace("first-run", "other"))
    wanted = {"dimension = 1": "dimension = 64", "head_start = 0": "head_start = 59"}
    for old, new in {**wanted, "epsilon = 2.0": "epsilon = 2.5"}.items():
        assert tail.count(f"{old}\n") == 1
        tail = tail.replace(f"{old}\n", f"{new}\n")
    assert text.endswith(tail)
    assert text.count("      # on its own host\n") == 12
    assert (
        """
[agents.agent011]
endpoint = "tls/127.0.0.1:7458"
data = "data/agent011.npz"      # on its own host
records = 119

[problem]
"""
        in text
    )
    assert (
        """
[agents.alice]
endpoint = "tcp/127.0.0.1:9000"
data = "data/alice.npz"      # on its own host
records = 719

[agents.bob]
endpoint = "tcp/127.0.0.1:9001"
data = "data/bob.npz"      # on its own host
records = 719

[problem]
"""
        in plain
    )
    assert "keys =" not in plain and plain.endswith("[run]\nsteps = 7\n")
    assert tomlkit.parse(text).as_string() == text
    assert load(tmp_path / "tls" / "net.toml").names[-1] == "agent011"


def test_secrets_are_public_and_may_name_agents():
    edges = [["alice", "bob"], ["carol", "bob"], [0, 2]]
    given = {**tables(), "secrets": {"colluders": 1, "edges": edges, "ratio": 2.0}}
    network = read(given, HERE)
    assert network.config.secrets["edges"] == [[0, 1], [2, 1], [0, 2]]
    assert network.public["secrets"] == network.config.secrets
    plain = read(tables(), HERE)
    assert "secrets" not in plain.public and plain.digest != network.digest
    other = read(changed("secrets", "ratio", to=3.0, base=given), HERE)
    assert other.digest != network.digest
    assert difference(network.public, other.public) == ("[secrets] ratio is 2.0 here and 3.0 there")
    assert difference(plain.public, network.public).startswith("secrets is None here and {")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, r"colluders in \[secrets\] must be given"),
        ({"ratio": 2.0}, r"colluders in \[secrets\] must be given"),
        ({"colluders": 1, "egdes": []}, r"key in \[secrets\] must be one of .* mean 'edges'"),
        (
            {"colluders": 1, "edges": [["alice", "bo"]]},
            r"edges in \[secrets\] must be one of alice, bob, carol, got 'bo'",
        ),
        ({"colluders": 1, "edges": 5}, r"edges in \[secrets\] must be a list of pairs"),
    ],
)
def test_mistakes_in_secrets_are_named(table, message):
    with pytest.raises(ValueError, match=message):
        read({**tables(), "secrets": table}, HERE)

"""Algorithms from outside: entry points and places, what is refused, and what a file may not do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import hearsay as hs
from hearsay.algorithms import outside
from hearsay.config import Config, build, dump, load
from hearsay.deploy import settings
from hearsay.planning import plan

EXAMPLE = Path(hs.__file__).parents[1] / "examples" / "gossip_package"
PLACE = "plain_gossip:PlainGossip"
SMALL = {"loss": "ridge", "agents": 3, "records": 12, "dimension": 2}


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder that Python imports from; its modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def gossip(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)


def install(folder: Path, package: str, **entries: str) -> None:
    """What pip leaves of a package's metadata."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name.replace('_', '-')} = {place}" for name, place in entries.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{outside.GROUP}]", *lines, ""]))


def test_names_of_installed_packages_are_listed_and_not_imported(path):
    install(path, "noisy", boom="boom_module:Boom")
    (path / "boom_module.py").write_text("raise RuntimeError('imported')\n")
    assert outside.names() == [*hs.REGISTRY, "boom"]
    assert "boom_module" not in sys.modules
    with pytest.raises(
        ValueError,
        match=r"'boom' \(boom_module:Boom of noisy\): importing boom_module fails with"
        r" RuntimeError: imported",
    ):
        hs.algorithm("boom")
    # The others still work.
    assert hs.algorithm("dsgd", noise=2).name == "dsgd"


def test_an_installed_algorithm_goes_by_its_name(path, gossip):
    install(path, "plain-gossip", plain_gossip=PLACE)
    algorithm = hs.algorithm("plain-gossip", noise=2.0, pull=0.5)
    assert algorithm.name == "plain-gossip" and algorithm.pull == hs.Constant(0.5)
    config = Config(SMALL, algorithm={"name": "plain-gossip", "pull": 0.5, "noise": 2.0})
    assert build(config)[0] == algorithm, "an installed package may be named in a file"
    with pytest.raises(ValueError, match="did you mean 'plain-gossip'"):
        hs.algorithm("plain_gosip")


def test_names_of_hearsays_own_cannot_be_taken(path, gossip):
    install(path, "thief", dsgd=PLACE)
    with pytest.warns(UserWarning, match=r"plain_gossip:PlainGossip of thief, .* is not used"):
        assert type(hs.algorithm("dsgd")) is hs.algorithms.Dsgd
    text = (EXAMPLE / "plain_gossip.py").read_text(encoding="utf-8")
    (path / "forged.py").write_text(text.replace('"plain-gossip"', '"dsgd"'))
    with pytest.raises(ValueError, match="whose own name .* is not one of hearsay's, 'dsgd'"):
        hs.algorithm("forged:PlainGossip")


def test_two_packages_with_one_name_are_told_apart(path, gossip):
    install(path, "one", gossip="one:Gossip")
    install(path, "two", gossip="two:Gossip")
    with pytest.raises(ValueError, match="one:Gossip of one, two:Gossip of two; name one by its"):
        hs.algorithm("gossip")
    install(path, "three", again=PLACE)
    install(path, "four", again=PLACE)
    assert hs.algorithm("again").name == "plain-gossip", "the same place is the same algorithm"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere_at_all:X", "there is no module 'nowhere_at_all'"),
        ("plain_gossip.inner:X", "importing plain_gossip.inner fails|there is no module"),
        ("plain_gossip:Nothing", "it has PlainGossip"),
        ("plain_gossip:Algorithm", "lacks leak, prepare, releases, update"),
        ("plain_gossip:Constant", "a class that inherits hearsay.base.Algorithm"),
        ("json:decoder", "a class that inherits hearsay.base.Algorithm"),
        ("textwrap:dedent", "missing 1 required positional argument"),
        ("a b:c", "must be package.module:Class"),
        (":x", "must be package.module:Class"),
        ("made:nothing", "something that builds an Algorithm"),
        ("made:left", "importing made fails with SystemExit|built|fails"),
    ],
)
def test_what_is_not_an_algorithm_is_named(place, message, path, gossip):
    text = "import sys\nsys.exit(3)\n" if place.endswith("left") else "def nothing():\n    pass\n"
    (path / "made.py").write_text(text)
    with pytest.raises((ValueError, TypeError), match=message):
        hs.algorithm(place)


def test_a_module_that_lacks_another_is_not_called_missing_itself(path):
    (path / "needy.py").write_text("import not_installed_here\n")
    with pytest.raises(ValueError, match="importing needy fails with ModuleNotFoundError"):
        hs.algorithm("needy:X")


def test_a_function_that_builds_one_is_an_algorithm_too(path, gossip):
    (path / "presets.py").write_text(
        "import hearsay as hs\n\n\ndef quiet(noise=9.0):\n    return hs.dsgd(noise=noise)\n"
    )
    assert hs.algorithm("presets:quiet").noise == hs.Constant(9.0)
    config = Config(SMALL, algorithm={"name": "presets:quiet"}).allowing("presets:quiet")
    assert build(config)[0] == hs.dsgd(noise=9.0)


# What a file may not do.


def test_a_file_alone_does_not_make_python_import(path):
    (path / "evil.py").write_text("from pathlib import Path\nPath(__file__).with_suffix('.ran')"
                                  ".touch()\n")  # fmt: skip
    file = path / "from_elsewhere.toml"
    file.write_text('[algorithm]\nname = "evil:Algorithm"\n[problem]\nloss = "ridge"\n')
    with pytest.raises(ValueError, match="must not make Python import a module by itself"):
        build(load(file))
    with pytest.raises(ValueError, match="must not make Python import a module by itself"):
        build(load(file).allowing("evil:Other", None))
    assert not (path / "evil.ran").exists()
    with pytest.raises(ValueError, match="evil"):
        build(load(file).allowing("evil:Algorithm"))
    assert (path / "evil.ran").exists(), "once it is typed, it is imported"


def test_a_place_that_was_typed_travels_with_the_configuration(gossip, tmp_path):
    config = Config(SMALL, algorithm={"name": PLACE, "noise": 2.0}).allowing(PLACE)
    algorithm, problem, graph = build(config.merged({"run": {"steps": 5}}))
    found = plan(algorithm, problem, graph, 5, 3.0).config(config)
    assert found.algorithm["name"] == PLACE and build(found)[0].name == "plain-gossip"
    file = tmp_path / "plan.toml"
    file.write_text(dump(found))
    assert "allowed" not in file.read_text()
    with pytest.raises(ValueError, match="by itself"):
        build(load(file))
    assert build(load(file).allowing(PLACE))[0] == build(found)[0]


def test_a_net_toml_needs_the_same_word(gossip, tmp_path):
    from hearsay.deploy.deployment import deployment

    file = tmp_path / "net.toml"
    file.write_text(
        f'[network]\nrun = "x"\n[agents.a]\nendpoint = "tcp/127.0.0.1:7001"\n[agents.b]\n'
        f'endpoint = "tcp/127.0.0.1:7002"\n[problem]\nloss = "ridge"\nrecords = 9\n'
        f'[algorithm]\nname = "{PLACE}"\n[privacy]\nepsilon = 5.0\n[run]\nsteps = 3\n'
    )
    with pytest.raises(ValueError, match=f"for agents --allow {PLACE}"):
        deployment(settings.load(file), None)
    assert deployment(settings.load(file, [PLACE]), None).algorithm.name == "plain-gossip"

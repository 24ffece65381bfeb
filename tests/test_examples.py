"""Examples run: those of docstrings, and the Python and shell blocks of README and docs.

A block of a page that is not run by default says so on the line above its fence:
`<!-- slow -->` (make test-slow runs it) or `<!-- not run: WHY -->`. The latter are listed here.
"""

from __future__ import annotations

import doctest
import functools
import importlib
import inspect
import re
import shlex
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

import hearsay as hs
from hearsay.base import Algorithm
from hearsay.cli import commands

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "hearsay"
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)
# Their blocks need a network, files that are set up first, several devices or processes:
# tests/deploy/test_network_docs.py, tests/tables/test_tables_docs.py and
# tests/simulation/test_devices.py (what can be run without a launcher) run them.
ELSEWHERE = {
    "docs/network.md",
    "docs/operations.md",
    "docs/tables.md",
    "docs/five-hospitals.md",
    "docs/many-machines.md",
}
PAGES = [
    page
    for page in ("README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")))
    if page not in ELSEWHERE
]
# Every block that is marked as not run: page, and how it begins.
NOT_RUN = {
    ("README.md", "make demo"),
    ("README.md", "hearsay run gradient-perturbation --data mnist"),
    ("docs/attack.md", "hearsay attack --data mnist"),
    ("docs/coming-from-flower.md", "import numpy as np\nfrom flwr.app"),
    ("docs/attack.md", "hearsay attack --config docs/results"),
    ("docs/releasing.md", "hearsay network release"),
    ("docs/frontier.md", "hearsay frontier breast-cancer"),
    ("docs/estimators.md", "hearsay fit schema.toml"),
    ("docs/settings.md", "python -m benchmarks.settings"),
    ("docs/arriving.md", "python -m benchmarks.arriving"),
    ("docs/arriving.md", "hearsay network init wards"),
}


class Block(NamedTuple):
    page: str
    index: int
    kind: str
    mark: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.page}[{self.index}]"


@functools.cache
def blocks(page: str) -> list[Block]:
    found = re.findall(
        r"^(?:<!-- (slow|not run: [^\n]+) -->\n)?```(\w*)\n(.*?)^```$",
        (ROOT / page).read_text(encoding="utf-8"),
        flags=re.DOTALL | re.MULTILINE,
    )
    return [Block(page, i, kind, mark, text) for i, (mark, kind, text) in enumerate(found)]


def cases(kind: str) -> list:
    return [
        pytest.param(one, id=one.id, marks=[pytest.mark.slow] if one.mark else [])
        for page in PAGES
        for one in blocks(page)
        if one.kind == kind and not one.mark.startswith("not run")
    ]


# What nobody needs who has no use for it: examples that import these run in `make test-torch`.
EXTRA = ("torch", "opacus")


def require_libraries(text: str) -> None:
    """Skips an example whose own lines import what is not installed."""
    for library in EXTRA:
        if re.search(rf"^(?: *>>> )?(?:import|from) {library}\b", text, re.MULTILINE):
            pytest.importorskip(library, reason=f"needs {library}: make test-torch runs it")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    require_libraries(Path(inspect.getfile(importlib.import_module(name))).read_text("utf-8"))
    failed, attempted = doctest.testmod(sys.modules[name])
    assert attempted and not failed


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder of its own that has the examples, as a checkout does."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("block", cases("python"))
@pytest.mark.usefixtures("checkout")
def test_the_code_on_a_page_runs(block):
    require_libraries(block.text)
    with warnings.catch_warnings():
        # Opacus warns of its generator and of its hooks whenever it is used.
        if "opacus" in block.text:
            warnings.simplefilter("ignore")
        exec(compile(block.text, block.id, "exec", dont_inherit=True), {"__name__": "example"})


@pytest.mark.parametrize("block", cases("sh"))
@pytest.mark.usefixtures("checkout")
def test_the_commands_on_a_page_run(block, monkeypatch):
    if "hearsay network" in block.text:
        pytest.importorskip("zenoh")
    monkeypatch.setattr(
        sys.modules["hearsay.simulation.simulating"], "enable_compilation_cache", lambda: None
    )
    for words in lines(block):
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            commands.main()
            raise SystemExit(0)
        assert not ended.value.code, f"{shlex.join(words)}: exit code {ended.value.code}"


def lines(block: Block) -> list[list[str]]:
    """The words of its commands; a backslash continues a line, # begins a comment."""
    joined = block.text.replace("\\\n", " ").splitlines()
    return [words for line in joined if (words := shlex.split(line, comments=True))]


def test_every_block_that_is_not_run_is_listed():
    marked = [one for page in PAGES for one in blocks(page) if one.mark.startswith("not run")]
    assert len(marked) == len(NOT_RUN)
    assert all(
        any(one.page == page and one.text.startswith(head) for page, head in NOT_RUN)
        for one in marked
    )


def test_every_block_of_code_says_what_it_is():
    """A fence without a language would be left out here without anybody noticing."""
    # What is typed at a console is run by tests/cli/test_gossip_package.py.
    known = {"python", "sh", "toml", "text", "console"}
    assert {one.kind for page in PAGES for one in blocks(page)} <= known
    for page in PAGES:
        fences = re.findall(r"^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == 2 * len(blocks(page)), page


def commands_on(page: str) -> list[list[str]]:
    """Those of its shell blocks, and of indented lines."""
    found = [words for one in blocks(page) if one.kind == "sh" for words in lines(one)]
    indented = re.findall(r"^ {4}(hearsay .*)", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    return found + [shlex.split(line, comments=True) for line in indented]


@pytest.mark.parametrize("page", [page for page in PAGES if commands_on(page)])
def test_every_command_on_a_page_exists_with_its_options(page):
    for words in commands_on(page):
        if words[0] == "make":
            continue
        assert words[0] == "hearsay", words
        command, path = typer.main.get_command(commands.app), list[str]()
        for word in words[1:]:
            inner = getattr(command, "commands", {}).get(word)
            if inner is None:
                break
            command, path = inner, [*path, word]
        assert path, f"{shlex.join(words)}: no such command"
        known = {option for one in command.params for option in one.opts}
        assert {w.partition("=")[0] for w in words if w.startswith("--")} <= known, words


def public() -> dict[str, object]:
    """What a user is meant to call, by the names under which it is found."""
    rooms = {"hearsay": hs, "hearsay.graphs": hs.graphs, "hearsay.problems": hs.problems}
    found = {
        f"{room}.{name}": getattr(module, name)
        for room, module in rooms.items()
        for name in module.__all__
    }
    return {
        name: one for name, one in found.items() if inspect.isroutine(one) or isinstance(one, type)
    }


@pytest.mark.parametrize("name", public())
def test_docstrings_have_one_form(name):
    """A summary on one line, every argument on a line of its own, an example of each function."""
    one = public()[name]
    text = inspect.getdoc(one) or ""
    summary = text.partition("\n\n")[0]
    assert "\n" not in summary and summary.endswith("."), f"{name}: {summary!r}"
    described = set(re.findall(r"^  (\w+): ", text.partition("\nArgs:\n")[2], re.MULTILINE))
    # Algorithm.__new__ takes anything, to answer unknown options; __init__ has the names.
    taken = Algorithm.__init__ if one is Algorithm else one
    arguments = set(inspect.signature(taken).parameters) - {"self"}  # type: ignore[arg-type]
    if isinstance(one, type) and issubclass(one, hs.problems.Problem):
        # A Problem's other arguments are those of a Task, which says what they are.
        arguments -= set(inspect.signature(hs.problems.Task).parameters)
    # Nobody gives an algorithm another name than those of its presets.
    allowed = {"name"} if isinstance(one, type) and issubclass(one, Algorithm) else set()
    assert arguments - described <= allowed, f"{name}: {sorted(arguments - described)}"
    assert inspect.isclass(one) or "\nExample:\n" in text, f"{name} has no example"

"""docs/tables.md: its blocks run one after the other in one folder, and what it quotes is said."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

import hearsay as hs
from hearsay.cli import commands
from tests.test_examples import Block, blocks, lines

pytest.importorskip("zenoh")
PAGE = "docs/tables.md"
TEXT = (Path(__file__).resolve().parents[2] / PAGE).read_text(encoding="utf-8")
FILES = {"target": "schema.toml", "[network]": "net.toml"}


def run(words: list[str], monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        commands.main()
        raise SystemExit(0)
    assert not ended.value.code, f"{shlex.join(words)}: exit code {ended.value.code}"


def step(block: Block, monkeypatch) -> None:
    if block.kind == "python":
        exec(compile(block.text, block.id, "exec", dont_inherit=True), {"__name__": "example"})
    elif block.kind == "toml":
        name = next(name for start, name in FILES.items() if block.text.startswith(start))
        Path(name).write_text(block.text)
    else:
        assert block.kind == "sh"
        for words in lines(block):
            run(words, monkeypatch)


def test_the_page_runs_from_its_first_block_to_its_last(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys.modules["hearsay.simulation.simulating"], "enable_compilation_cache", lambda: None
    )
    for block in blocks(PAGE):
        step(block, monkeypatch)
    printed, said = capfd.readouterr()
    (owner,) = re.findall(r"^    (north\.csv: \d.*)$", TEXT, re.MULTILINE)
    assert owner in said.splitlines() and owner not in printed.splitlines()[:-3]
    with pytest.raises(ValueError, match=r"range in \[columns.age\] of draft.toml must be filled"):
        hs.Schema.load("draft.toml")
    # The second run repeats the first, whose configuration has the paths as seen from its folder.
    assert '"../north.csv"' in Path("first/config.toml").read_text()
    first, again = (Path(f"{name}/certificate.json").read_text() for name in ("first", "again"))
    assert first == again
    # No count of anything that is in a table is in a file that a run leaves, or in a certificate.
    words = [part.split(": ")[1] for part in owner.split("; ")[1:]]
    kept = [path for path in Path("first").rglob("*") if path.suffix in (".json", ".toml", ".html")]
    assert kept and not any(word in path.read_text() for path in kept for word in words)

"""What the documentation names exists. That its code runs: test_examples.py."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

import hearsay

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_the_files_that_pages_and_docstrings_name_exist():
    """`room/file.py` is a file of the package, tests, benchmarks or examples."""
    root = DOCS.parent
    there = [
        f"/{path.relative_to(root)}"
        for folder in ("hearsay", "tests", "benchmarks", "docs", "examples")
        for path in (root / folder).rglob("*")
    ]
    there += [f"/{path.name}" for path in root.iterdir()]
    missing = {
        f"{page.name}: {name}"
        for page in (root / "README.md", *DOCS.glob("*.md"))
        for name in re.findall(r"[`(]([\w./-]+\.(?:py|md))[`)#]", page.read_text(encoding="utf-8"))
        if not any(path.endswith(f"/{name.removeprefix('../')}") for path in there)
    }
    for path in (root / "hearsay").rglob("*.py"):
        names = re.findall(r"(?<![\w./{*\"'-])([a-z_][\w/]*\.py)\b", path.read_text("utf-8"))
        missing |= {
            f"{path.name}: {name}"
            for name in names
            if not any(known.endswith(f"/{name}") for known in there)
        }
    assert not missing


def test_every_page_is_in_the_index():
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    missing = {p.name for p in DOCS.glob("*.md") if f"({p.name}" not in index} - {"README.md"}
    assert not missing


def test_the_page_of_public_names_is_what_the_docstrings_say(monkeypatch):
    """Otherwise: python docs/api.py."""
    written = runpy.run_path(str(DOCS / "api.py"))
    assert (DOCS / "api.md").read_text(encoding="utf-8") == written["page"]()
    # A name that nobody put into a group is not left out silently.
    monkeypatch.setattr(hearsay, "__all__", [*hearsay.__all__, "new"])
    with pytest.raises(SystemExit, match="no group: {'new'}"):
        written["page"]()


def test_no_page_or_message_names_a_package_of_somebody_else():
    """The distribution is hearsay-dp; `pip install hearsay` would fetch a stranger's."""
    root = DOCS.parent
    paths = [root / name for name in ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml")]
    paths += [
        p
        for folder in ("docs", "hearsay", "benchmarks")
        for p in (root / folder).rglob("*")
        if p.is_file()
    ]
    wrong = re.compile(r"(?<![\w-])hearsay\[(network|dev)|pip install (-e )?['\"]?hearsay(?!-dp)\b")
    found = {
        str(p)
        for p in paths
        if p.suffix not in (".pyc", ".gz", ".png") and wrong.search(p.read_text(encoding="utf-8"))
    }
    assert not found
    assert all(
        wrong.search(text)
        for text in (
            "pip install 'hearsay[network]'",
            "pip install hearsay",
            "the extra hearsay[dev]",
        )
    )
    tables = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    project = tables["project"]
    assert (project["name"], list(project["scripts"])) == ("hearsay-dp", ["hearsay"])
    assert "hearsay-dp[network]" in project["optional-dependencies"]["dev"]


def test_the_best_settings_of_the_readme_are_those_of_the_benchmark():
    rows = (DOCS / "results" / "best-settings.txt").read_text(encoding="utf-8").splitlines()
    readme = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    for way, word in (("alone", "alone reaches"), ("together", "together"), ("central", "server")):
        found = [row.split()[3] for row in rows if row.startswith(f"{way} ")]
        assert len(found) == 3 and f"{word} {found[0]}, {found[1]} and {found[2]}" in readme


def test_the_table_of_records_that_arrive_is_that_of_the_benchmark():
    def rows(path: Path) -> list[list[str]]:
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        return [row[:10] for row in found if len(row) >= 10 and row[2].endswith("%")]

    measured = [
        [cell if place < 3 or float(cell) >= -9 else "below -9" for place, cell in enumerate(row)]
        for row in rows(DOCS / "results" / "arriving.txt")
    ]
    assert len(measured) == 28 and rows(DOCS / "arriving.md") == measured


def test_the_table_of_rehearsed_settings_is_that_of_the_benchmark():
    def rows(path: Path) -> list[list[str]]:
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [[cell.strip() for cell in line.strip("|").split("|")][:9] for line in lines]
        return [
            row for row in found if row[2:3] and row[2] in ("all others hostile", "one colluder")
        ]

    measured = rows(DOCS / "results" / "settings.txt")
    assert len(measured) == 28
    assert [row for row in rows(DOCS / "settings.md") if len(row) == 9] == measured
    hostile = [row for row in measured if row[2] == "all others hostile"]
    assert all(float(row[7]) > float(row[5]) for row in hostile), "joining pays in all of them"
    one, two = ([row for row in measured if row[:2] == ["breast-cancer", e]] for e in "12")
    words = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    assert f"alone has {one[0][5]} and {two[0][5]} at" in words
    assert f"together {one[0][7]} and {two[0][7]}, with shared secrets {one[1][7]} and" in words

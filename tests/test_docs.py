"""What the documentation names exists. That its code runs: test_examples.py."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


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
        if p.suffix not in (".pyc", ".gz") and wrong.search(p.read_text(encoding="utf-8"))
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

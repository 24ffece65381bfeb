"""Code in the documentation runs, and says what it claims."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = ["threat-model.md", "neural.md", "adding-an-algorithm.md"]


def blocks(page: str) -> list[str]:
    return re.findall(
        r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL
    )


@pytest.mark.parametrize(
    ("page", "index"), [(page, i) for page in PAGES for i in range(len(blocks(page)))]
)
def test_the_code_on_a_page_runs(page, index, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = compile(blocks(page)[index], f"{page}[{index}]", "exec", dont_inherit=True)
    exec(code, {})


def test_pages_have_code():
    assert all(blocks(page) for page in PAGES)


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

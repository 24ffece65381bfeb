"""Code in the documentation runs, and says what it claims."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = ["threat-model.md", "neural.md"]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize(("page", "index"), [(page, i) for page in PAGES for i in range(len(blocks(page)))])
def test_the_code_on_a_page_runs(page, index, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks(page)[index], f"{page}[{index}]", "exec"), {})


def test_pages_have_code():
    assert all(blocks(page) for page in PAGES)

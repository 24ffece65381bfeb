"""hearsay's own files, parsed once for all the tests that hold their text against a rule."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import hearsay

ROOT = Path(hearsay.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Everything that a file consists of."""
    return tuple(ast.walk(parsed(path)))

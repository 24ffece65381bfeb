"""How the house is built: what an object knows, nobody else asks for by name."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import hearsay
from hearsay.graphs.channels import CHANNELS
from hearsay.mechanisms import MECHANISMS
from hearsay.mechanisms.factorized.kinds import FACTORIZATIONS

ROOT = Path(hearsay.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
# Attributes in which an algorithm declares which laws it accepts: those may be searched.
DECLARED = {"mechanisms", "paper_mechanisms"}


def last_name(node: ast.AST) -> str:
    """x of x, a.x and a.b.x; "" for anything else."""
    return getattr(node, "attr", getattr(node, "id", ""))


def of_laws(node: ast.AST) -> bool:
    """A law's name, or a container that holds one."""
    return any(isinstance(n, ast.Constant) and n.value in MECHANISMS for n in ast.walk(node))


def comparisons(source: str) -> list[int]:
    """Lines on which a mechanism's name is compared with something, or something with one."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.MatchValue) and of_laws(node):
            found.append(node.lineno)
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        # `"mechanism" in table` asks whether a key is there; `x in self.mechanisms` is declared.
        if any(last_name(side) in DECLARED for side in sides):
            continue
        if any(last_name(side) == "mechanism" or of_laws(side) for side in sides):
            found.append(node.lineno)
    return found


KINDS = set(FACTORIZATIONS) | set(CHANNELS)


def asked_kinds(source: str) -> list[int]:
    """Lines on which `.name` is compared with the name of a factorization or a channel."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        and any(last_name(side) == "name" for side in [node.left, *node.comparators])
        and any(isinstance(n, ast.Constant) and n.value in KINDS for n in ast.walk(node))
    ]


def unbound(source: str) -> list[int]:
    """Lines with a set of names of laws: another way to ask for them."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Set) and of_laws(node)
    ]


def branching() -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for path in FILES
        if path.relative_to(ROOT).parts[0] != "mechanisms"
        and (comparisons(text := path.read_text(encoding="utf-8")) or unbound(text))
    }


def test_nobody_outside_mechanisms_asks_for_the_name_of_one():
    assert not branching()


def test_nobody_asks_a_factorization_or_a_channel_for_its_name():
    assert asked_kinds('if known.name == "tree" or x.name in ("blt", "banded"): pass') == [1, 1]
    assert not [path for path in FILES if asked_kinds(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('algorithm.mechanism == "gaussian"', [1]),
        ('"ternary" != kind', [1]),
        ('x = 1\nlaw.name in ("laplace", "gaussian")', [2]),
        ("mechanism not in KINDS", [1]),
        ("a.mechanism == b.mechanism", [1]),
        ('match kind:\n    case "laplace":\n        pass', [2]),
        ("self.mechanism in self.paper_mechanisms", []),
        ('"mechanism" in config.algorithm', []),
        ('make(mechanism="gaussian")', []),
        ("law.at_delta", []),
    ],
)
def test_the_checker_sees_comparisons(source, lines):
    assert comparisons(source) == lines


def test_no_module_is_hidden_by_a_function_of_its_name():
    hidden = []
    for found in pkgutil.walk_packages(hearsay.__path__, "hearsay."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        parent, _, name = found.name.rpartition(".")
        if getattr(importlib.import_module(parent), name) is not module:
            hidden.append(found.name)
    assert not hidden


def test_the_house_has_at_most_ten_modules_at_its_top_level():
    assert len(list(Path(hearsay.__file__).parent.glob("*.py"))) <= 10

"""How the house is built: what an object knows, nobody else asks for by name."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import hearsay
from hearsay.graphs.channels import CHANNELS
from hearsay.mechanisms import MECHANISMS
from hearsay.mechanisms.factorized.kinds import FACTORIZATIONS
from tests.sources import FILES, ROOT, nodes

# Attributes in which an algorithm declares which laws it accepts: those may be searched.
DECLARED = {"mechanisms", "paper_mechanisms"}


def last_name(node: ast.AST) -> str:
    """x of x, a.x and a.b.x; "" for anything else."""
    return getattr(node, "attr", getattr(node, "id", ""))


def of_laws(node: ast.AST) -> bool:
    """A law's name, or a container that holds one."""
    return any(isinstance(n, ast.Constant) and n.value in MECHANISMS for n in ast.walk(node))


def comparisons(code: Iterable[ast.AST]) -> list[int]:
    """Lines on which a mechanism's name is compared with something, or something with one."""
    found = []
    for node in code:
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


def asked_kinds(code: Iterable[ast.AST]) -> list[int]:
    """Lines on which `.name` is compared with the name of a factorization or a channel."""
    return [
        node.lineno
        for node in code
        if isinstance(node, ast.Compare)
        and any(last_name(side) == "name" for side in [node.left, *node.comparators])
        and any(isinstance(n, ast.Constant) and n.value in KINDS for n in ast.walk(node))
    ]


def unbound(code: Iterable[ast.AST]) -> list[int]:
    """Lines with a set of names of laws: another way to ask for them."""
    return [node.lineno for node in code if isinstance(node, ast.Set) and of_laws(node)]


def branching() -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for path in FILES
        if path.relative_to(ROOT).parts[0] != "mechanisms"
        and (comparisons(nodes(path)) or unbound(nodes(path)))
    }


def test_nobody_outside_mechanisms_asks_for_the_name_of_one():
    assert not branching()


def test_nobody_asks_a_factorization_or_a_channel_for_its_name():
    sample = ast.parse('if known.name == "tree" or x.name in ("blt", "banded"): pass')
    assert asked_kinds(ast.walk(sample)) == [1, 1]
    assert not [path for path in FILES if asked_kinds(nodes(path))]


def test_nobody_asks_which_kind_of_account_or_pattern_it_has():
    kinds = {"Account", "RecursionAccount", "FactorizedAccount", "Participation", "FromArrival"}
    seen = 0
    for path in FILES:
        names = set(kinds)
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module == "hearsay.privacy.participation":
                names |= {one.asname or one.name for one in node.names}
        for node in nodes(path):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("isinstance", "type")
            ):
                seen += 1
                asked = {ast.unparse(one).rpartition(".")[2] for one in ast.walk(node) if one}
                assert not asked & names, f"{path}:{node.lineno} {ast.unparse(node)}"
    assert seen > 100


def test_a_checked_number_is_never_thrown_away():
    """`require.positive("clip", clip)` on a line of its own checks one number and leaves another in
    use. Where require.plain_arguments has been before, the two are the same.
    """
    rules = (
        "real|number|positive|nonnegative|budget|positive_or_infinite|bound|bound_or_infinite"
        "|count|natural|horizon|fraction|share|interval|array|per_agent"
    )
    thrown = re.compile(rf"require\.({rules})\(.*")
    found = []
    for path in FILES:
        seen_to = {
            id(inner)
            for node in nodes(path)
            if isinstance(node, ast.FunctionDef)
            and any("plain_arguments" in ast.unparse(d) for d in node.decorator_list)
            for inner in ast.walk(node)
        }
        for node in nodes(path):
            alone = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
            if alone and id(node) not in seen_to:
                found += [
                    f"{path.name}:{node.lineno}: {m[0]}"
                    for m in [thrown.match(ast.unparse(node))]
                    if m
                ]
    assert not found


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
    assert comparisons(ast.walk(ast.parse(source))) == lines


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

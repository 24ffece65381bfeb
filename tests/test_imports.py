"""Who imports whom: importing the library is light, and layers only look down."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hearsay
from tests.sources import FILES, ROOT, parsed

HEAVY = {
    "zenoh",
    "safetensors",
    "cryptography",
    "matplotlib",
    "jinja2",
    "tomlkit",
    "typer",
    "rich",
    "sklearn",
    "dp_accounting",
    "pydantic",
    "narwhals",
    "pandas",
    "polars",
    "pyarrow",
    "torch",
}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imported(path: Path, everywhere: bool = True) -> set[str]:
    """Modules that a file imports; only those that importing it pulls in unless `everywhere`."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            # `from hearsay import graphs` imports hearsay.graphs;
            # `from hearsay.graphs import Graph` does not import a module Graph.
            found.add(node.module or "")
            found.update(
                f"{node.module}.{n.name}"
                for n in node.names
                if is_module(f"{node.module}.{n.name}")
            )
        if everywhere or not lazy(node):
            for child in ast.iter_child_nodes(node):
                visit(child)

    visit(parsed(path))
    return found


def lazy(node: ast.AST) -> bool:
    """Whether importing a file leaves out what is inside."""
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or (
        isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    )


def is_module(name: str) -> bool:
    place = ROOT.parent / name.replace(".", "/")
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def files_that_import(package: str) -> set[str]:
    return {module_of(f) for f in FILES if any(inside(m, package) for m in imported(f))}


def test_importing_hearsay_is_light():
    script = "import sys, hearsay; print(' '.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    modules = set(result.stdout.split())
    loaded = {name.split(".")[0] for name in modules}
    assert "jax" in loaded
    assert not loaded & HEAVY
    # Twenty megabytes of every agent, and half a second of every command.
    assert not modules & {"scipy.stats", "scipy.signal"}


def test_completion_offers_every_name_that_hearsay_has_and_none_of_typing():
    offered = dir(hearsay)
    assert set(hearsay.__all__) <= set(offered)
    assert {"NetworkClassifier", "check_algorithm", "frontier", "privacy"} <= set(offered)
    assert not {"TYPE_CHECKING", "Any", "Callable"} & set(offered)
    assert all(hasattr(hearsay, name) for name in offered)


def test_only_the_cli_files_know_typer_and_rich():
    for library in ("typer", "rich"):
        found = files_that_import(library)
        assert found and all(inside(module, "hearsay.cli") for module in found)


def test_the_network_libraries_stay_in_deploy():
    assert files_that_import("zenoh") == {"hearsay.deploy.transport"}
    outside = {m for m in files_that_import("cryptography") if not inside(m, "hearsay.deploy")}
    # The stream of a key that two agents share, imported when noise is drawn from it.
    assert outside == {"hearsay.mechanisms.shared_lattice"}
    assert files_that_import("safetensors") == {"hearsay.deploy.ledger"}


def test_frames_and_parquet_are_known_where_tables_are_read_and_nowhere_else():
    for library in ("narwhals", "pyarrow"):
        assert files_that_import(library) == {"hearsay.tables.reading"}
    assert not files_that_import("pandas") and not files_that_import("polars")


def test_torch_stays_in_the_files_of_the_bridge_and_is_imported_late():
    assert files_that_import("torch") == {
        "hearsay.problems.losses.torch_clipping",
        "hearsay.problems.losses.torch_host",
        "hearsay.problems.losses.torch_refusals",
        "hearsay.problems.losses.torch_state",
        "hearsay.problems.torch_modules",
    }
    for path in FILES:
        assert not any(inside(m, "torch") for m in imported(path, everywhere=False)), path


def test_only_the_network_commands_use_deploy():
    outside = {m for m in files_that_import("hearsay.deploy") if not inside(m, "hearsay.deploy")}
    # Pages of deployed runs name the types of what they draw, and import nothing of it.
    assert outside == {
        "hearsay.cli.agent",
        "hearsay.cli.network",
        "hearsay.cli.network_adopt",
        "hearsay.cli.network_state",
        "hearsay.cli.network_up",
        "hearsay.cli.network_watch",
        "hearsay.report.deployed",
        "hearsay.report.watched",
    }
    for page in ("deployed.py", "watched.py"):
        needed = imported(ROOT / "report" / page, everywhere=False)
        assert not any(inside(name, "hearsay.deploy") for name in needed)


@pytest.mark.parametrize("library", ["matplotlib", "jinja2", "markupsafe"])
def test_only_the_report_package_imports_what_draws_and_marks_up(library):
    users = files_that_import(library)
    assert users
    # The notes of the papers' experiments are templates too.
    users -= {"hearsay.experiments.settings"} if library == "jinja2" else set()
    assert all(inside(name, "hearsay.report") for name in users)


def test_nothing_imports_the_report_package_when_it_is_imported_itself():
    for path in FILES:
        if not inside(module_of(path), "hearsay.report"):
            assert not any(inside(m, "hearsay.report") for m in imported(path, everywhere=False)), (
                path
            )


def test_the_accountant_knows_nothing_of_jax_problems_or_runs():
    """Accounting in NumPy: a certificate can be checked without the machinery
    that runs the algorithm.
    """
    allowed = {
        "hearsay._validate",
        "hearsay.schedules",
        "hearsay.privacy",
        "hearsay.mechanisms",
    }
    checked = [
        f
        for f in FILES
        if inside(module_of(f), "hearsay.privacy") or module_of(f) == "hearsay.schedules"
    ]
    assert len(checked) >= 6
    # How a certificate looks in a notebook, imported when it is looked at.
    shown = {"hearsay.privacy.certificate": {"hearsay.report.inline"}}
    for path in checked:
        for name in imported(path) - shown.get(module_of(path), set()):
            assert name.split(".")[0] not in ("jax", "jaxlib", "equinox"), f"{path} imports {name}"
            if name != "hearsay" and inside(name, "hearsay"):
                assert any(inside(name, layer) for layer in allowed), f"{path} imports {name}"


def test_a_certificate_is_verified_without_jax(tmp_path):
    """Not even through what the accountant imports: the laws of noise load it when they draw."""
    problem, graph = (
        hearsay.problems.ridge(agents=2, records=9, dimension=2),
        hearsay.graphs.ring(2),
    )
    algorithm = hearsay.ldp_online(noise=60.0)
    path = tmp_path / "certificate.json"
    found = hearsay.certify(algorithm, problem, graph, 5, delta=1e-5)
    path.write_text(found.to_json(), encoding="utf-8")
    script = (
        "import sys, types\n"
        "package = types.ModuleType('hearsay')\n"
        f"package.__path__ = [{str(ROOT)!r}]\n"
        "sys.modules['hearsay'] = package\n"
        "from hearsay.privacy.verification import verify_text\n"
        "print(verify_text(open(sys.argv[1]).read())[1].holds, 'jax' in sys.modules)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["True", "False"]


DOC = ROOT.parent / "docs" / "architecture.md"


def layers() -> list[list[str]]:
    """The list in docs/architecture.md: a paragraph is a layer, a line that begins at its margin
    names a file or a package.
    """
    text = DOC.read_text(encoding="utf-8").partition("\n## Layers\n")[2].partition("\n## ")[0]
    found: list[list[str]] = []
    for paragraph in text.split("\n\n"):
        names = [line.split()[0] for line in paragraph.splitlines() if re.match(r" {4}\S", line)]
        if names:
            found.append([name.removesuffix(".py").removesuffix("/") for name in names])
    return found


LAYERS = layers()


def layer(module: str) -> int:
    for index, names in enumerate(LAYERS):
        if any(inside(module, f"hearsay.{name}") for name in names):
            return index
    pytest.fail(f"{module} has no layer: add it to {DOC}")


def test_the_list_of_layers_names_every_file_once_and_nothing_else():
    named = [name for names in LAYERS for name in names]
    there = {p.stem for p in ROOT.glob("*.py")} | {
        p.parent.name for p in ROOT.glob("*/__init__.py")
    }
    assert sorted(named) == sorted(there - {"__init__"})


@pytest.mark.parametrize(
    "path", [f for f in FILES if f != ROOT / "__init__.py"], ids=lambda f: str(f.relative_to(ROOT))
)
def test_layers_only_look_down(path):
    own = layer(module_of(path))
    for name in imported(path, everywhere=False):
        if name != "hearsay" and inside(name, "hearsay"):
            assert layer(name) <= own, f"{module_of(path)} imports {name}, which lies above it"


def test_the_checker_itself_sees_imports(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text(
        "from typing import TYPE_CHECKING\nfrom hearsay import graphs\nif TYPE_CHECKING:\n   "
        " import typer\ndef f():\n    import matplotlib.pyplot\n"
    )
    assert {"hearsay.graphs", "typer", "matplotlib.pyplot"} <= imported(path)
    assert {"typer", "matplotlib.pyplot"}.isdisjoint(imported(path, everywhere=False))

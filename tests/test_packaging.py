"""What is shipped: the files beside the code, and what a wheel holds."""

from __future__ import annotations

import fnmatch
import hashlib
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import hearsay
from hearsay._version import VERSION

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGE = Path(hearsay.__file__).parent


def files() -> set[str]:
    """What git knows of, so that no leftover is taken for a part of the package."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if found.returncode:
        pytest.skip("not a checkout")
    return {name for name in found.stdout.splitlines() if (ROOT / name).exists()}


def test_the_licence_is_the_one_that_is_named():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    # The text of apache.org, less the empty line that it begins with.
    assert hashlib.sha256(b"\n" + text.encode()).hexdigest() == (
        "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    )
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert PROJECT["project"]["license-files"] == ["LICENSE"]


def test_the_citation_is_valid_and_of_this_version():
    """Of the Citation File Format 1.2.0 as much as is used: plain keys, one list each, and the
    four papers of docs/papers.md.
    """
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    head, papers = text.split("references:\n")
    lines = head.splitlines()
    single = re.compile(r'([a-z-]+): ("[^"\\]+"|[\w.-]+)')
    whole: dict[str, object] = {}
    last = ""
    for line in lines:
        if line.startswith("  - "):
            item = line[4:]
            pair = single.fullmatch(item)
            listed = whole[last]
            assert isinstance(listed, list)
            listed.append({pair[1]: pair[2].strip('"')} if pair else item)
        elif line.endswith(":"):
            last = line[:-1]
            whole[last] = []
        else:
            pair = single.fullmatch(line)
            assert pair, f"not a plain key: {line!r}"
            assert pair[1] not in whole
            whole[pair[1]] = pair[2].strip('"')
    # The required keys of the format, and those that are used of the others.
    assert {"cff-version", "message", "title", "authors"} <= whole.keys()
    assert whole.keys() <= {
        "cff-version", "message", "title", "authors", "type", "abstract", "version", "license",
        "keywords",
    }  # fmt: skip
    assert (whole["cff-version"], whole["type"]) == ("1.2.0", "software")
    assert whole["authors"] == [{"name": "The hearsay authors"}]
    cited = [
        dict(re.findall(r"^    ([a-z-]+): (.+)$", one, re.MULTILINE))
        for one in papers.split("  - type: article\n")[1:]
    ]
    known = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    for one in cited:
        assert {"title", "authors", "year"} <= one.keys()
        people = re.findall(r"family-names: ([\w-]+), given-names: ([\w-]+)", one["authors"])
        assert f"{', '.join(' '.join(p[::-1]) for p in people)} | {one['title'][1:-1]}" in known
    assert len(cited) == 4
    assert whole["version"] == VERSION and whole["license"] == PROJECT["project"]["license"]


def test_every_file_of_the_package_that_is_no_code_is_shipped():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["hearsay"]
    more = {
        name.removeprefix("hearsay/")
        for name in files()
        if name.startswith("hearsay/") and not name.endswith(".py")
    }
    assert more and not {
        name for name in more if not any(fnmatch.fnmatch(name, one) for one in patterns)
    }
    assert not [one for one in patterns if not fnmatch.filter(more, one)], "matches nothing"
    # A folder without __init__.py is no package: its code would be left out.
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert all((folder / "__init__.py").exists() for folder in folders)


@pytest.mark.slow
def test_a_wheel_holds_the_package_and_nothing_else_and_runs(tmp_path):
    """It needs a package index, for setuptools."""
    source = tmp_path / "source"
    for name in files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    words = ["-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, source]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        (metadata,) = (name for name in held if name.endswith("/METADATA"))
        about = archive.read(metadata).decode()
    info = metadata.partition("/")[0]
    assert {name for name in held if not name.startswith(f"{info}/")} == {
        name for name in files() if name.startswith("hearsay/")
    }
    assert f"{info}/licenses/LICENSE" in held
    assert "License-Expression: Apache-2.0" in about and f"Version: {VERSION}" in about
    # What it depends on is this environment's; hearsay itself is the wheel's.
    venv.create(tmp_path / "venv", system_site_packages=True, with_pip=True)
    binaries = tmp_path / "venv" / "bin"
    words = ["-m", "pip", "install", "--no-deps", "--force-reinstall", wheel]
    subprocess.run([binaries / "python", *words], check=True, capture_output=True)
    paths = [path for path in sys.path if path.endswith("site-packages")]
    environment = {"PATH": str(binaries), "PYTHONPATH": ":".join(paths), "HOME": str(tmp_path)}

    def output(*command: str) -> str:
        found = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return found.stdout

    script = str(binaries / "hearsay")
    assert output(script, "--version") == f"hearsay {VERSION}\n"
    where = output(str(binaries / "python"), "-c", "import hearsay; print(hearsay.__file__)")
    assert where.startswith(str(tmp_path / "venv")), "this checkout was imported"
    assert "Privacy certificate" in output(script, "certify", "--data", "digits", "--noise", "1")
    run = ["--loss", "ridge", "--agents", "3", "--steps", "3", "--noise", "1", "--out", "run"]
    assert "private-report.html" in output(script, "run", "dsgd", *run)

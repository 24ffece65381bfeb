"""The net under a refactoring: record what the package computes, and compare two recordings.

    python -m benchmarks.golden record FILE.json[.gz] [--only PART]
    python -m benchmarks.golden compare OLD NEW [--texts]

A recording holds, for every case of golden_cases.py, the final models of all agents and seeds, the
measured curves, certificates for finite and infinite horizons, calibrated noise, spent budgets and
the conditions of the papers' theory; and for networks of three agents (noise from a seed, and the
real noise from fixed secrets) models and certificates as the agents write them. Numbers are kept to
the last bit. Texts are kept apart: they may be reworded, so `compare` counts them as differences
only with --texts. Exit code 1: something differs.

`--only PART` records the cases whose key contains PART ("simulate", "deploy", an algorithm ...);
`compare` then looks at those alone.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import math
import os
import platform
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

import hearsay as hs
from benchmarks.golden_cases import PROBLEMS, Case, cases, networks
from benchmarks.golden_entries import Entry, adapt, deployed, horizons, simulated


def jobs() -> dict[str, Callable[[SimpleNamespace], Entry]]:
    """Every case's key and how to record it."""
    found: dict[str, Callable[[SimpleNamespace], Entry]] = {"planned horizons": horizons}
    problems: dict[tuple[str, int], Any] = {}

    def simulation(case: Case, internals: SimpleNamespace) -> Entry:
        jax.config.update("jax_enable_x64", case.bits == 64)
        # Its arrays have the precision in which they were first asked for.
        mine = (case.problem, case.bits)
        if mine not in problems:
            problems[mine] = PROBLEMS[case.problem]()
        return simulated(case, problems[mine], internals)

    for case in cases():
        found[case.key] = lambda internals, case=case: simulation(case, internals)
    tables = networks()
    for name, table in tables.items():
        for label, seed in (("seed", 3), ("lattice", None)):
            # A skipping network that skips nothing computes what a patient one does.
            if not (name.endswith(" skip") and seed is None):
                key = f"deploy {name} {label}"
                found[key] = lambda internals, t=table, s=seed: deployed(t, s, internals)
    found["deploy processes"] = lambda internals: deployed(tables["dsgd"], 3, internals, True)
    return found


def about() -> dict[str, str]:
    """What the last bits may depend on besides the package."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    cpu = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    flags = {name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_"))}
    return {
        "hearsay": hs.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": str(jax.devices()[0]),
        "cpu": cpu[0] if cpu else platform.processor(),
        "cores": str(os.cpu_count()),
        "flags": json.dumps(flags, sort_keys=True),
    }


def record(path: Path, only: str) -> None:
    chosen = {key: job for key, job in jobs().items() if only in key}
    if not chosen:
        raise SystemExit(f"PART must be a part of some case's key, got {only!r}")
    internals, found, seconds, failed = adapt(), {}, {}, []
    warnings.simplefilter("ignore")
    for number, (key, job) in enumerate(chosen.items(), 1):
        began = sum(os.times()[:4])
        jax.config.update("jax_enable_x64", True)
        try:
            entry = job(internals)
        except Exception:
            traceback.print_exc()
            failed.append(key)
            continue
        seconds[key] = sum(os.times()[:4]) - began
        found[key] = {"numbers": entry.numbers, "texts": entry.texts}
        print(f"{number}/{len(chosen)} {key}: {seconds[key]:.1f} s", file=sys.stderr, flush=True)
    if failed:
        raise SystemExit(f"nothing is written, because these cases cannot be recorded: {failed}")
    whole = {"about": about(), "only": only, "cases": found}
    text = json.dumps(whole, indent=1).encode()
    # Without a time in it, so that equal recordings are equal files.
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    print(f"{len(found)} cases in {sum(seconds.values()):.0f} s of CPU, {path}")


def unpacked(value: Any) -> list[Any]:
    """A flat list of numbers (or None, or words that say how a call ended)."""
    if isinstance(value, list):
        return [one for part in value for one in unpacked(part)]
    if isinstance(value, str) and value.count(" ") == 2 and value[0] in "<|>":
        kind, _, data = value.split(" ")
        return np.frombuffer(base64.b64decode(data), kind).tolist()
    try:
        return [float.fromhex(value)] if isinstance(value, str) else [value]
    except ValueError:
        return [value]


def gap(old: Any, new: Any) -> tuple[float, str]:
    """(largest relative difference, what differs in words) of two values that are not the same."""
    before, after = unpacked(old), unpacked(new)
    if len(before) != len(after):
        return math.inf, f"{len(before)} numbers became {len(after)}"
    different = [(a, b) for a, b in zip(before, after, strict=True) if repr(a) != repr(b)]
    if not different:
        return math.inf, f"another type or shape: {str(old)[:30]} became {str(new)[:30]}"
    sizes = [(*_apart(a, b), a, b) for a, b in different]
    relative, absolute, a, b = max(sizes, key=lambda size: size[:2])
    count = f"{len(different)} of {len(before)} differ"
    return relative, f"{count}, most {a!r} -> {b!r} (by {absolute:.3g}, relative {relative:.3g})"


def _apart(a: Any, b: Any) -> tuple[float, float]:
    """(relative, absolute) difference; infinite where one of the two is no number."""
    numbers = all(isinstance(x, (int, float)) and math.isfinite(x) for x in (a, b))
    if not numbers:
        return math.inf, math.inf
    size = max(abs(a), abs(b))
    return (abs(a - b) / size if size else 0.0), float(abs(a - b))


def load(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def _chosen(cases: dict[str, Any], *parts: str) -> dict[str, Any]:
    """Cases that a partial recording leaves out are not missed."""
    return {key: case for key, case in cases.items() if all(part in key for part in parts)}


def compare(old: Path, new: Path, with_texts: bool) -> int:
    """Print what differs; 1 if anything that counts does."""
    one, two = load(old), load(new)
    for name, value in one["about"].items():
        if name != "hearsay" and value != (other := two["about"].get(name)):
            print(f"NOTE: other {name}, so that last bits may differ: {value!r}, now {other!r}")
    parts = (one["only"], two["only"])
    before, after = (_chosen(recording["cases"], *parts) for recording in (one, two))
    numbers, texts, worst, news = 0, 0, (0.0, "nothing"), set[str]()
    for key in sorted(before.keys() & after.keys()):
        a, b = before[key], after[key]
        for name in sorted(a["numbers"].keys() | b["numbers"].keys()):
            was, now = a["numbers"].get(name, "missing"), b["numbers"].get(name, "missing")
            if name not in a["numbers"]:
                news.add(name)
            elif was != now:
                # A digest says nothing about a size; the numbers beside it do.
                digest = "sha256" in name
                relative, text = (0.0, "other bytes") if digest else gap(was, now)
                print(f"NUMBER {key} | {name}: {text}")
                worst = max(worst, (relative, f"{key} | {name}"))
                numbers += 1
        for name in sorted(a["texts"].keys() | b["texts"].keys()):
            was, now = a["texts"].get(name, "missing"), b["texts"].get(name, "missing")
            if was != now:
                texts += 1
                if with_texts:
                    print(f"TEXT {key} | {name}:\n  - {json.dumps(was)}\n  + {json.dumps(now)}")
    lost, added = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    for what, keys in (("LOST", lost), ("ADDED", added)):
        print("".join(f"{what} {key}\n" for key in keys), end="")
    if news:
        print(f"NEW numbers, which the old recording does not have: {', '.join(sorted(news))}")
    together = len(before.keys() & after.keys())
    print(f"{together} cases in both, {len(lost)} lost, {len(added)} added")
    print(f"{numbers} numbers differ, most (relatively, {worst[0]:.3g}) {worst[1]}")
    print(f"{texts} texts differ" + ("" if with_texts or not texts else " (--texts shows them)"))
    return int(bool(numbers or lost or not together or (with_texts and texts)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.golden")
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("record", help="record what the importable hearsay computes")
    making.add_argument("file", type=Path)
    making.add_argument("--only", metavar="PART", default="", help="cases whose key contains it")
    looking = commands.add_parser("compare", help="exit code 1: the recordings differ")
    looking.add_argument("old", type=Path)
    looking.add_argument("new", type=Path)
    looking.add_argument("--texts", action="store_true", help="texts must be the same too")
    given = parser.parse_args()
    if given.command == "record":
        record(given.file, given.only)
    else:
        sys.exit(compare(given.old, given.new, given.texts))


if __name__ == "__main__":
    main()

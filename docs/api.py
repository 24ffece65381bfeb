"""Writes docs/api.md: every public name of hearsay, its arguments and what it is in a sentence.

    python docs/api.py

A test (tests/test_docs.py) fails where the page is not what this writes, and where a name has no
group. All of it is read from the docstrings: `help(hearsay.simulate)` has the whole of each.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

import hearsay as hs
from hearsay import base

PAGE = Path(__file__).with_name("api.md")
HEAD = """# Every public name

Written by `python docs/api.py` from the docstrings; not to be edited. `help(hearsay.simulate)` says
what every argument is, with an example. `import hearsay as hs` is taken for granted; `*` stands
before arguments that are given by name. New here: [docs/README.md](README.md).
"""
# Names that are no functions or classes have no docstring.
VALUES = {
    "REGISTRY": "Every algorithm by the name that configurations and the command line use.",
    "__version__": "The version of hearsay.",
    "graphs": "Who hears whom: a module, below.",
    "problems": "Who holds what, and what is to be learned: a module, below.",
    "BUILDERS": "Builders of graphs by the name that configurations use.",
    "Noise": "The type of an option that is a schedule of noise, for all agents or one for each.",
    "Rule": 'The weights of edges: "metropolis", "uniform", ..., or one number for all edges.',
    "IMAGES": "Readers of image data sets by name.",
    "MODELS": "Neural networks by name.",
    "PROBLEMS": "Problems by the name that configurations use.",
    "SAMPLERS": "Samplers by the name that configurations use.",
    "TASKS": "What makes the Task, without any record, of a problem of that name.",
}
# Groups of hearsay's own names; algorithms have one of their own, by the registry.
GROUPS = {
    "Estimators, for tables in files, arrays or data frames": [
        "NetworkClassifier",
        "NetworkRegressor",
        "TableEncoder",
    ],
    "What is public of a table": ["Schema", "Number", "Category", "Ignored"],
    "Problems and graphs": ["problems", "graphs"],
    "Schedules": ["Constant", "PowerLaw", "Geometric", "SampleSize"],
    "Sampling: which records a step uses": [
        "Poisson",
        "Subset",
        "Cyclic",
        "Fresh",
        "History",
        "Resample",
    ],
    "Shared secrets": ["Secrets"],
    "Certificates": ["certify", "calibrate", "Certificate", "budget_by_horizon", "add_up"],
    "Running": ["simulate", "Run", "Costs", "Faults", "load_run", "SavedRun"],
    "Release": ["ReleasedModel", "load_model"],
    "Settings without looking at records": ["rehearse", "Rehearsal", "frontier"],
    "Audits": ["check_algorithm"],
    "Algorithms of your own": ["Algorithm", "algorithm", "REGISTRY", "__version__"],
}
MODULES = {
    "hearsay.problems": {
        "Problems": [
            "logistic",
            "softmax",
            "ridge",
            "tabular",
            "neural",
            "from_torch",
            "estimation",
            "synthetic",
        ],
        "What a problem is": ["Problem", "Task", "Declared"],
        "Data": [
            "load",
            "Dataset",
            "from_arrays",
            "linear_stream",
            "load_images",
            "Images",
            "from_records",
            "Records",
            "Stream",
            "table_facts",
        ],
        "Losses and domains": [
            "Logistic",
            "PolynomialLogistic",
            "Softmax",
            "Squared",
            "HalfSquared",
            "NeuralLoss",
            "Ball",
            "Box",
        ],
        "Models": ["Model", "from_module", "from_function", "torch_model", "state_dict"],
        "By name": ["PROBLEMS", "TASKS", "SAMPLERS", "MODELS", "IMAGES"],
    },
    "hearsay.graphs": {
        "Graphs": [
            "ring",
            "star",
            "complete",
            "grid",
            "exponential",
            "random",
            "five_agents",
            "directed_ring",
            "random_digraph",
        ],
        "Of your own": ["edges", "from_weights", "from_mixing", "from_networkx", "pair"],
        "What a graph is": ["Graph", "Rule", "BUILDERS"],
    },
}


def default(value: object) -> str:
    """As it is written in a call; what has no short form of its own is only said to be there."""
    text = repr(value)
    return text if len(text) <= 24 and "<" not in text else "..."


def arguments(one: object) -> str:
    """Its arguments with their defaults: how they are called, without their types."""
    # Algorithm.__new__ takes anything, to answer unknown options; __init__ has the names.
    taken = one.__init__ if one is hs.Algorithm else one
    said, named = list[str](), False
    for each in inspect.signature(taken).parameters.values():  # type: ignore[arg-type]
        if each.name == "self":
            continue
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        if each.kind == each.KEYWORD_ONLY and not named:
            said.append("*")
        named |= each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        has = each.default is not each.empty
        said.append(f"{star}{each.name}{f'={default(each.default)}' if has else ''}")
    return f"({', '.join(said)})"


def summary(one: object) -> str:
    """The first paragraph of its docstring, on one line."""
    return " ".join((inspect.getdoc(one) or "").partition("\n\n")[0].split())


def entry(room: ModuleType, place: str, name: str) -> str:
    if name in VALUES:
        return f"- `{place}{name}`: {VALUES[name]}"
    one = getattr(room, name)
    return f"- `{place}{name}{arguments(one)}`: {summary(one)}"


def section(room: ModuleType, place: str, title: str, names: list[str], level: str) -> list[str]:
    return [f"\n{level} {title}\n", *(entry(room, place, name) for name in names)]


def require_every_name(room: ModuleType, grouped: list[str]) -> None:
    """What is hearsay's own name, too (samplers), is listed there."""
    public = set(room.__all__) if room is hs else set(room.__all__) - set(hs.__all__)
    missing, unknown = public - set(grouped), set(grouped) - public
    if missing or unknown:
        raise SystemExit(f"docs/api.py, {room.__name__}: no group: {missing}, gone: {unknown}")


def page() -> str:
    lines = [HEAD.rstrip("\n")]
    verbs = [name for name in hs.__all__ if name in {n.replace("-", "_") for n in hs.REGISTRY}]
    own = {**GROUPS, "Algorithms": [*verbs, "scheme_s1", "scheme_s2"]}
    require_every_name(hs, [name for names in own.values() for name in names])
    for title, names in own.items():
        lines += section(hs, "hs.", title, names, "##")
    for place, groups in MODULES.items():
        room = getattr(hs, place.partition(".")[2])
        require_every_name(room, [name for names in groups.values() for name in names])
        lines.append(f"\n## {place}")
        for title, names in groups.items():
            lines += section(room, f"hs.{place.partition('.')[2]}.", title, names, "###")
    lines.append("\n## hearsay.base: what an algorithm of your own is written with\n")
    lines.append("[How](adding-an-algorithm.md), line by line.\n")
    lines += [entry(base, "hearsay.base.", name) for name in base.__all__ if name != "Algorithm"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

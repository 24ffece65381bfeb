"""`hearsay fit`: one table per agent, learned from on a simulated network."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import secrets
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from hearsay.cli import before, folders
from hearsay.cli.folders import claim_run, interrupted
from hearsay.cli.json_output import answer, answering, of_rehearsal, of_release, of_run
from hearsay.cli.options import Out, Overwrite, Resume
from hearsay.cli.screen import Owner, console, hint, note, progress_bar, summary, typeable
from hearsay.config import DELTA, EPSILON
from hearsay.privacy.adjacency import ZERO_OUT
from hearsay.simulation.worth import worth

RELEASED = "released"
LINEAR = "linear"
_ALONE = (
    "One file is one agent, which learns by itself. Give more files, one for each agent; or deal"
    " the rows of this one out, as if so many people had them: --agents 5"
)

_RANKED = (
    "area under the ROC curve {:.3g} (guessing: 0.5, perfect: 1): the chance that of two test rows"
    " with different labels the model tells which is which. Where one label is far commoner, this"
    " says more than the accuracy"
)

_AGAIN = (
    "Another fit on the same rows, new settings or new columns too, adds its epsilon to this one's"
    " (docs/estimators.md, Next month)."
)

_Schema = Annotated[
    Path,
    typer.Argument(help="What is public of the tables: a schema.toml (hearsay schema drafts one)."),
]
_Tables = Annotated[
    list[Path] | None,
    typer.Argument(help="One table for every agent: CSV, TSV or Parquet files."),
]
_Epsilon = Annotated[float, typer.Option(help="What every agent may spend.")]
_Delta = Annotated[float, typer.Option(help="At which epsilon holds.")]
_Colluders = Annotated[
    int | None,
    typer.Option(
        help=(
            "How many of the other agents may work together against one, where pairs of agents"
            " share secrets (default: all of them, and nobody has secrets)."
        )
    ),
]
_Test = Annotated[
    Path | None,
    typer.Option(help="A table to test on, of people whose rows are in no agent's table."),
]
_Model = Annotated[str, typer.Option(help="linear, or a neural network: mlp.")]
_Graph = Annotated[
    str | None,
    typer.Option(help="ring, star, complete, ... (default: complete up to 10 agents)."),
]
_Adjacency = Annotated[
    str, typer.Option(help="What is protected: zero-out or replace (docs/adjacency.md).")
]
_Agents = Annotated[
    int | None,
    typer.Option(help="Deal the rows of one table out to so many agents, at random."),
]
_Seed = Annotated[
    int | None,
    typer.Option(
        help=(
            "Of the simulated noise: whoever knows it can take it off again (default: drawn"
            " from the operating system, and kept in a private file)."
        )
    ),
]


class _Asked(NamedTuple):
    """What a fit is to do, but for its seed and its folder."""

    schema: Path
    tables: list[Path]
    epsilon: float
    delta: float
    colluders: int | None
    test: Path | None
    model: str
    graph: str | None
    adjacency: str
    agents: int | None

    @property
    def command(self) -> str:
        """As it may be published: files without their folders, and no seed."""
        words = ["hearsay", "fit", self.schema.name, *(table.name for table in self.tables)]
        words += ["--epsilon", f"{self.epsilon:g}", "--delta", f"{self.delta:g}"]
        words += [] if self.colluders is None else ["--colluders", f"{self.colluders}"]
        words += [] if self.model == LINEAR else ["--model", self.model]
        words += [] if self.graph is None else ["--graph", self.graph]
        words += [] if self.agents is None else ["--agents", f"{self.agents}"]
        return shlex.join([*words, "--adjacency", self.adjacency])

    def fit(self, seed: int) -> before.Fit:
        """What is remembered of it."""
        protects = f"{self.adjacency}, colluders {self.colluders}"
        said = ":".join([self.command, *before.digests([self.schema])])
        settings = hashlib.sha256(said.encode()).hexdigest()
        tables = before.digests(self.tables)
        return before.Fit("", tables, self.epsilon, self.delta, protects, seed, settings)


@answering
def fit(
    schema: _Schema,
    tables: _Tables = None,
    epsilon: _Epsilon = EPSILON,
    delta: _Delta = DELTA,
    colluders: _Colluders = None,
    test: _Test = None,
    model: _Model = LINEAR,
    graph: _Graph = None,
    adjacency: _Adjacency = ZERO_OUT,
    agents: _Agents = None,
    seed: _Seed = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Learn from one table per agent on a simulated network, and write the model that may be
    published into OUT/released.

    Settings come from a rehearsal on made-up records, which sees nothing private. Files whose names
    begin with private- hold what no certificate covers.
    """
    given = [] if tables is None else tables
    asked = _Asked(schema, given, epsilon, delta, colluders, test, model, graph, adjacency, agents)
    folder = out or Path("out") / f"fit-{schema.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    with folders.command():
        _require_tables(asked)
        claim_run(folder, resume, overwrite)
        number = _seed(seed, folder, resume)
        mine = asked.fit(number)
        if known := before.earlier(folder, mine):
            note(before.words(known, mine))
        result = _fitted(asked, folder, number, resume, overwrite)
        before.keep(folder, mine)
        _finished(result, folder, asked, known)


def _require_tables(asked: _Asked) -> None:
    """A schema, then tables; or what to type for it."""
    from hearsay.tables.reading import PARQUET, TEXT

    if asked.schema.suffix.lower() in (*TEXT, *PARQUET):
        files, draft = [asked.schema, *asked.tables], Path("schema.toml")
        first = typeable("hearsay", "schema", files[0], "-o", draft)
        made = f"there is a {draft} here" if draft.exists() else f"{first} drafts it; fill it in"
        raise ValueError(
            f"SCHEMA must be a schema.toml, which says what is public of the tables, got the table"
            f" {asked.schema}: {made}, then {typeable('hearsay', 'fit', draft, *files)}"
        )
    if not asked.tables:
        again = typeable("hearsay", "fit", asked.schema)
        raise ValueError(f"TABLES must be given, one file for every agent: {again} NORTH.csv ...")
    if asked.agents is not None and len(asked.tables) > 1:
        raise ValueError(
            "--agents must be left out with several tables, each of which is one agent's, got"
            f" {asked.agents}"
        )


def _fitted(asked: _Asked, folder: Path, seed: int, resume: bool, overwrite: bool) -> Any:
    """Rehearsed, run and released."""
    from hearsay._files import private, write_atomically
    from hearsay.estimators.fitting import graph_of, rehearsed, run_rehearsed

    problem = _problem(asked, seed)
    network = graph_of(asked.graph, problem.agents)
    with progress_bar() as show:
        found = rehearsed(
            problem,
            network,
            epsilon=asked.epsilon,
            delta=asked.delta,
            colluders=asked.colluders,
            progress=show,
        )
    _say(found.words)
    for text in found.warnings:
        note(text)
    write_atomically(folder / private("seed.txt"), str(seed).encode())
    with progress_bar() as show:
        result = run_rehearsed(
            found,
            problem,
            network,
            delta=asked.delta,
            seed=seed,
            folder=folder,
            resume=resume,
            overwrite=overwrite,
            progress=functools.partial(show, "training"),
        )
    if result.run.interrupted:
        interrupted(folders.KEPT)
    return result


def _problem(asked: _Asked, seed: int) -> Any:
    """What the tables and the schema say is learned; their owners are told what was counted."""
    from hearsay import problems
    from hearsay.estimators.arrays import dealt
    from hearsay.estimators.fitting import network_of
    from hearsay.problems.data.table_rows import deal_rows, read_rows
    from hearsay.tables.schema import Schema

    network, public = network_of(asked.model), Schema.load(asked.schema)
    for text in public.warnings:
        note(f"{asked.schema}: {text}")
    told: dict[str, Any] = {"test": asked.test, "notify": Owner()}
    if asked.agents is None:
        rows = read_rows(asked.tables, public, **told)
    else:
        parts = functools.partial(dealt, agents=asked.agents, seed=seed)
        rows = deal_rows(asked.tables[0], public, parts, **told)
    if rows.records.agents == 1:
        note(_ALONE)
    return problems.tabular(rows, public, model=network, adjacency=asked.adjacency, seed=seed)


def _finished(result: Any, folder: Path, asked: _Asked, known: list[before.Fit]) -> None:
    """Write what there is, and say it."""
    from hearsay.release.ranking import area
    from hearsay.tradeoff.beside import with_beside

    run = with_beside(result.run)
    model = replace(result.model, made={**result.model.made, "command": asked.command})
    report, released = run.report(folder), model.save(folder / RELEASED)
    tested = (run.problem.test_features, run.problem.test_labels)
    ranked = area(model, *tested) if run.tested else None
    answer(
        **of_run(run),
        auc=ranked,
        rehearsal=of_rehearsal(result.rehearsal),
        before=[{"folder": b.folder, "epsilon": b.epsilon, "delta": b.delta} for b in known],
        folder=folder,
        report=report,
        released=of_release(model, released),
    )
    print(model)
    if run.tested:
        summary({run.algorithm.name: run})
        if (found := worth(run)) is not None and found.each:
            _say(_each_alone(run, found.each, asked))
        if ranked is not None:
            _say(_RANKED.format(ranked))
        hint({run.algorithm.name: run}, rehearsed=True)
    _say(_AGAIN)
    _say(f"Report, private: {report}")
    _say(f"Released model, may be published: {released}")
    _say(f"Predictions: {typeable('hearsay', 'predict', released)} NEW.csv")


def _each_alone(run: Any, values: tuple[float, ...], asked: _Asked) -> str:
    """What every agent would have without the others."""
    dealt = asked.agents is not None
    names = [f"agent {k}" for k in range(run.problem.agents)]
    names = names if dealt else [table.stem for table in asked.tables]
    counts = run.problem.counts.tolist()
    said = [
        f"{name} {value:.4g} ({rows:,} rows)"
        for name, value, rows in zip(names, values, counts, strict=True)
    ]
    return f"alone, each with settings of its own at the same epsilon: {', '.join(said)}"


def _seed(given: int | None, folder: Path, resume: bool) -> int:
    """The seed of the noise: as given, that of the run that goes on, or a new one."""
    from hearsay import _validate as require
    from hearsay._files import private
    from hearsay.simulation import checkpoint, identity

    file = folder / private("seed.txt")
    if resume:
        if given is not None:
            raise ValueError("--seed must be left out with --resume: the run has its own")
        if not file.exists():
            raise ValueError(f"--resume needs --out with the folder of a fit, got {folder}")
        given = int(file.read_text(encoding="ascii"))
        # The file may be that of a run that was to replace this one and never began.
        with contextlib.suppress(checkpoint.DamagedCheckpoint, FileNotFoundError):
            given = (identity.seeds_of(checkpoint.load(folder)) or [given])[0]
    if given is None:
        return secrets.randbelow(2**31)
    if require.seed("--seed", given) >= 2**31:
        require.fail("--seed", "below 2^31", given)
    return given


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)

"""The command line.

Everything it does, it does through the library; only the cli files know typer and rich.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hearsay.cli import folders, network
from hearsay.cli.folders import claim, interrupted, require_writable
from hearsay.cli.options import CHOSEN_BY_RULE, NAMES, configurable, word
from hearsay.cli.screen import (
    algorithm_line,
    attack_table,
    console,
    errors,
    hint,
    plan_table,
    progress_bar,
    summary,
    theory_table,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Differentially private learning on networks: agents exchange only noisy messages, and"
        " every run comes with a privacy certificate that is true.\n\nStart here: [bold]hearsay"
        " demo[/bold], then [bold]hearsay run --help[/bold]"
    ),
)

app.command()(network.agent)
app.add_typer(network.network, name="network")

Out = Annotated[
    Path | None, typer.Option(help="Folder for the results (default: a new one under out/).")
]
DataDir = Annotated[str | None, typer.Option(help="Folder with the raw data files.")]
Flag = typer.Option


@app.command()
@configurable()
def run(
    config: Any,
    budget: Annotated[
        float | None,
        typer.Option(
            help=(
                "Stop before any agent has spent more than this epsilon (ternary messages: before"
                " its delta exceeds --delta)."
            )
        ),
    ] = None,
    out: Out = None,
    resume: Annotated[
        bool, Flag("--resume", help="Continue the run in --out from its checkpoint.")
    ] = False,
    overwrite: Annotated[
        bool, Flag("--overwrite", help="Replace the run that is in --out.")
    ] = False,
    no_privacy: Annotated[
        bool, Flag("--no-privacy", help="Allow a run whose budget is infinite.")
    ] = False,
) -> None:
    """Train on a simulated network; leaves a folder with certificate, metrics, checkpoint and
    report.html.

    Without --noise or --epsilon the noise is set so that every agent spends epsilon = 10.
    """
    if resume:
        from hearsay.config import load

        if out is None or not (out / "config.toml").exists():
            raise ValueError(f"--resume needs --out with the folder of a run, got {out}")
        typed, kept = config.algorithm.get("name"), load(out / "config.toml")
        same = typed == kept.algorithm.get("name") and len(config.algorithm) == 1
        others = (config.problem, config.graph, config.privacy, config.run, config.secrets)
        if any(others) or (config.algorithm and not same):
            raise ValueError(
                "--resume continues the run that is in --out as it is: give no other settings (only"
                " --budget)"
            )
        config = kept.allowing(typed)
    config = config.merged({"privacy": {"budget": budget}})
    name = config.algorithm.get("name", "ldp-online").replace(":", ".")
    data = config.problem.get("data", "digits")
    loss = config.problem.get("loss")
    data = loss if loss in ("estimation", "synthetic") else data  # these make their own
    folder = out or Path("out") / f"{name}-{data}-{time.strftime('%Y%m%d-%H%M%S')}"
    _run(_with_noise(config), folder, resume, overwrite, no_privacy)


@app.command()
@configurable("steps", "seeds", "colluders")
def certify(
    config: Any,
    horizon: Annotated[str, typer.Option(help="Number of messages, or inf.")] = "inf",
    colluders: Annotated[
        int | None,
        typer.Option(
            help=(
                "State epsilon against so many of the other agents: of the noise that [secrets] in"
                " --config plans, or of secrets that are planned for so many."
            )
        ),
    ] = None,
    json: Annotated[bool, Flag("--json", help="Print JSON instead of text.")] = False,
    theory: Annotated[bool, typer.Option(help="Also print the paper's conditions.")] = True,
    out: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Folder to write certificate.json to (with --adjacency both:"
                " certificate-replace.json and certificate-zero-out.json)."
            )
        ),
    ] = None,
) -> None:
    """Print the privacy certificate of a configuration, before anything is sent.

    With --adjacency both it prints the certificate of the same run under either adjacency. Exit
    code 3: the budget is infinite.
    """
    from hearsay.certification import calibrate
    from hearsay.cli.certify import certificates, printed, written

    messages = _horizon(horizon)
    target = config.privacy.get("epsilon")
    config, adjacencies = _adjacencies(config)
    if colluders is not None and "colluders" not in config.secrets:
        config, colluders = config.merged({"secrets": {"colluders": colluders}}), None
    algorithm, problem, graph = _build(config.without("privacy", "epsilon"))
    if target is not None:
        algorithm = calibrate(algorithm, problem, graph, messages, target, delta=config.delta)
    found = certificates(algorithm, problem, graph, messages, config.delta, adjacencies, colluders)
    print(printed(found, json=json))
    if out is not None:
        written(found, out)
    if not json:
        console.print(f"\n{algorithm_line(algorithm)}", soft_wrap=True, highlight=False)
    if theory and not json:
        from hearsay.algorithms.theory.findings import findings

        theory_table(findings(algorithm, graph, problem))
    if not all(certificate.finite for certificate in found.values()):
        raise typer.Exit(3)


@app.command()
def verify(
    files: Annotated[
        list[Path], typer.Argument(help="Certificates: certificate.json of a run.", exists=True)
    ],
) -> None:
    """Compute every number of a certificate again from the description in it.

    It needs no data and no network. Exit code 2: a file is damaged, a number is missing or lower
    than what it costs, or there is no description.
    """
    from hearsay.cli.verify import verified

    results = [verified(path) for path in files]
    for lines, _ in results:
        print("\n".join(lines))
    if not all(holds for _, holds in results):
        raise typer.Exit(2)


@app.command()
def algorithms() -> None:
    """List every algorithm that can be used, those of installed packages too (none is imported)."""
    from hearsay.cli.algorithms import listed

    print("\n".join(listed()))


@app.command()
def check_algorithm(
    name: Annotated[str, typer.Argument(help=f"{NAMES}.")],
    settings: Annotated[
        list[str] | None, Flag("--set", help="An option of it, as option=value; repeatable.")
    ] = None,
    quick: Annotated[
        bool, Flag("--quick", help="One small problem instead of eight; nothing is noted.")
    ] = False,
) -> None:
    """Hold an algorithm against the contract, and its certificate against adversaries.

    A pass is noted for this very source, and certificates of the algorithm say so. It can refute a
    certificate, never prove it. Exit code 4: a check fails.
    """
    from hearsay.cli.algorithms import checked

    text, passed = checked(name, settings or (), not quick)
    print(text)
    if not passed:
        raise typer.Exit(4)


@app.command()
@configurable("steps", "seeds")
def plan(
    config: Any,
    horizon: Annotated[str, typer.Option(help="Number of messages, or inf.")] = "inf",
    epsilons: Annotated[
        str | None,
        typer.Option(help="One target per agent, e.g. 1,1,2,4,8 (instead of --epsilon)."),
    ] = None,
    exponents: Annotated[
        bool,
        Flag(
            "--exponents",
            help="Choose the exponents of all schedules too, for the fastest promised rate.",
        ),
    ] = False,
    samples: Annotated[
        float | None, typer.Option(help="The most records that each agent may use.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where the configuration goes, for hearsay run --config.")
    ] = Path("plan.toml"),
) -> None:
    """Choose the noise (and, on request, the exponents) that meets a privacy target,
    and write a configuration that runs it.
    """
    from hearsay._files import write_atomically
    from hearsay.config import dump
    from hearsay.planning import plan as library_plan

    targets: Any = config.privacy.get("epsilon")
    if epsilons is not None:
        targets = [word(part) for part in epsilons.split(",")]
    if targets is None:
        raise ValueError("a plan needs a target: --epsilon, or --epsilons with one per agent")
    require_writable(out.parent)
    algorithm, problem, graph = _build(config.without("privacy", "epsilon"))
    found = library_plan(
        algorithm,
        problem,
        graph,
        _horizon(horizon),
        targets,
        delta=config.delta,
        exponents=exponents,
        samples=samples,
    )
    print(found.certificate)
    plan_table(found)
    theory_table(list(found.findings))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, dump(found.config(config)).encode())
    console.print(f"Run it with: hearsay run {_typed(config)}--config {out}", soft_wrap=True)


@app.command()
@configurable("algorithm")
def compare(
    algorithms: Annotated[list[str], typer.Argument(help=f"Two or more of {NAMES}.")],
    config: Any,
    out: Out = None,
) -> None:
    """Run several algorithms on one problem and graph, at the same --noise or the same --epsilon,
    and compare them in one report.
    """
    if len(set(algorithms)) < 2 or len(set(algorithms)) < len(algorithms):
        raise ValueError(
            f"compare needs two or more different algorithms, got {' '.join(algorithms)}"
        )
    from hearsay.certification import unit
    from hearsay.report.comparison import comparison_report
    from hearsay.simulation.optimum import Reference
    from hearsay.simulation.simulating import simulate

    out = out or Path("out") / f"compare-{time.strftime('%Y%m%d-%H%M%S')}"
    claim(out)
    runs: dict[str, Any] = {}
    config = _with_noise(config.allowing(*algorithms), algorithms)
    built = {name: _build(config.merged({"algorithm": {"name": name}})) for name in algorithms}
    shared = built[algorithms[0]][1]
    reference = Reference(shared)
    try:
        for name, (algorithm, problem, graph) in built.items():
            with progress_bar(unit(algorithm)) as show:
                runs[name] = simulate(
                    algorithm,
                    problem,
                    graph,
                    steps=config.steps,
                    seeds=config.seeds,
                    every=config.every,
                    delta=config.delta,
                    reference=reference,
                    progress=functools.partial(show, name),
                )
            if runs[name].interrupted:
                break
    except KeyboardInterrupt:
        if not runs:
            raise
    summary(runs)
    missing = [name for name in algorithms if name not in runs or runs[name].interrupted]
    notes = [f"INTERRUPTED: {', '.join(missing)} did not come to the end."] if missing else []
    report = comparison_report(runs, out, f"Comparison on {shared.name}", notes=notes)
    console.print(f"Report: {report}", soft_wrap=True)
    if missing:
        interrupted("The report has what is done.")


@app.command()
@configurable(*CHOSEN_BY_RULE)
def frontier(
    problem: Annotated[
        str,
        typer.Argument(
            help=(
                "The data: digits, breast-cancer, mushrooms (logistic regression); mnist, cifar10"
                " (neural networks)."
            )
        ),
    ],
    config: Any,
    epsilon: Annotated[
        str, typer.Option(help="What every agent may spend: several numbers, e.g. 1,2,4.")
    ] = "1,2,4",
    delta: Annotated[float, typer.Option(help="At which epsilon holds.")] = 1e-5,
    splits: Annotated[
        int, typer.Option(help="How many times records are dealt out anew, and others tested on.")
    ] = 5,
    seeds: Annotated[int, typer.Option(help="Noise seeds for each split.")] = 4,
    series: Annotated[
        str | None,
        typer.Option(help="Some rows of the table only, e.g. alone,secret-batches,secrets-1."),
    ] = None,
    colluders: Annotated[
        str | None,
        typer.Option(
            help=(
                "How many of the others may collude where pairs of agents share secrets: one"
                " number or several, e.g. 1,3 (beside none and half of them). 1 unless given."
            )
        ),
    ] = None,
    out: Out = None,
) -> None:
    """Accuracy against epsilon: every agent alone, all together with nobody trusted or with shared
    secrets, a trusted server. Settings come from a rule that sees no private data; every point has
    its certificate.

    Under zero-out adjacency unless --adjacency says otherwise. Ctrl-C keeps the points that are
    finished; the same command with the same --out goes on.
    """
    from hearsay.cli.frontier import run_frontier

    folder = out or Path("out") / f"frontier-{problem}"
    claim(folder)
    missing = run_frontier(
        config.merged({"problem": {"data": problem}}),
        folder,
        epsilons=[word(part) for part in epsilon.split(",")],
        delta=delta,
        splits=splits,
        seeds=seeds,
        series=series.split(",") if series else None,
        colluders=[word(part) for part in colluders.split(",")] if colluders else None,
    )
    if missing:
        interrupted("The points that are finished are kept and will not be run again.")


@app.command()
@configurable("seeds")
def attack(
    config: Any,
    levels: Annotated[
        str, typer.Option(help="Multiples of the noise, e.g. 0,0.5,1,2.")
    ] = "0,0.5,1,1.5,2",
    targets: Annotated[
        int, typer.Option(help="Records to attack: one of agent 0, 1, ... in turn.")
    ] = 3,
    at_step: Annotated[
        int, typer.Option(help="Attack the batch of this step; step 0 is the easiest.")
    ] = 0,
    restarts: Annotated[
        int, typer.Option(help="Descents from random images; the best fit is kept.")
    ] = 3,
    iterations: Annotated[int, typer.Option(help="The most steps of a descent.")] = 200,
    prior: Annotated[
        bool, Flag("--prior", help="Also use what public images look like (a stronger attack).")
    ] = False,
    known_labels: Annotated[
        bool, Flag("--known-labels", help="Tell the attacker the labels.")
    ] = False,
    out: Out = None,
) -> None:
    """Try to reconstruct training images from what agents send (the DLG attack),
    at several noise levels; leaves a report with the pictures.
    """
    from hearsay.audit.dlg import against_noise
    from hearsay.report.attack import attack_report
    from hearsay.simulation.simulating import enable_compilation_cache

    config = _with_noise(
        config.merged({"problem": {"loss": "neural", "model": "cnn-p1", **config.problem}})
    )
    folder = out or Path("out") / f"attack-{time.strftime('%Y%m%d-%H%M%S')}"
    claim(folder)
    enable_compilation_cache()
    algorithm, problem, graph = _build(config)
    with progress_bar() as show:
        sweep = against_noise(
            algorithm,
            problem,
            graph,
            levels=[word(part) for part in levels.split(",")],
            targets=targets,
            step=at_step,
            restarts=restarts,
            iterations=iterations,
            prior=prior,
            labels="known" if known_labels else "inferred",
            progress=functools.partial(show, "attack"),
        )
    attack_table(sweep)
    console.print(f"Report: {attack_report(sweep, folder)}", soft_wrap=True)
    if sweep.left:
        interrupted("The report has the noise levels that are done.")


@app.command()
@configurable("seeds")
def audit(
    config: Any,
    runs: Annotated[
        int, typer.Option(help="Runs per agent, half of them on either data set.")
    ] = 10_000,
    agent: Annotated[
        list[int] | None, typer.Option(help="Only this agent; repeatable (default: every one).")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this part: noise, search or runs; repeatable (default: all three)."
        ),
    ] = None,
    out: Out = None,
) -> None:
    """Attack a configuration: test its noise, search for the worst case, and tell two data sets
    that differ in one record apart by the messages.

    Without --steps 5 messages are audited (pure epsilon adds up worst cases that grow rare: few
    messages give tight bounds). Exit code 4: the noise is not the claimed one, or a certificate is
    exceeded. Ctrl-C keeps what is finished (exit code 130).
    """
    from hearsay.audit.whole import PARTS
    from hearsay.cli.audit import run_audit

    config = _with_noise(
        config.merged({"run": {"precision": 64, "steps": config.run.get("steps", 5)}})
    )
    folder = out or Path("out") / f"audit-{time.strftime('%Y%m%d-%H%M%S')}"
    claim(folder)
    code = run_audit(
        _build(config),
        folder=folder,
        steps=config.steps,
        runs=runs,
        delta=config.delta,
        agents=agent,
        parts=only or PARTS,
    )
    if code:
        raise typer.Exit(code)


@app.command()
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help=(
                "On convex problems: p1-mushrooms, p2-convex, p3-estimation, p4-logistic. With"
                " neural networks: p1-mnist, p1-cifar, p1-table2, "
                "p2-mnist, p2-cifar, p3-mnist, p4-mnist."
            )
        ),
    ],
    out: Out = None,
    data_dir: DataDir = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help=(
                "Noise seeds per curve (10 on convex problems; with neural networks 1 for a small"
                " run and 3 for the paper's)."
            )
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help=(
                "small, paper, or a number up to 1. Convex problems: that share of the iterations"
                " (small is 0.1, paper is 1, the default). "
                "Neural networks: small (the default) takes minutes on two cores, paper has the"
                " printed numbers and wants a GPU."
            )
        ),
    ] = None,
) -> None:
    """Repeat a paper's experiment with its settings;
    the report says where our numbers differ, and why.
    """
    from hearsay.experiments import EXPERIMENTS, scale_and_seeds
    from hearsay.experiments.parts import keeping

    options = scale_and_seeds(experiment, scale, seeds)
    folder = out or Path("out") / experiment
    with folders.command():
        claim(folder)
        try:
            with keeping(folder) as parts, progress_bar() as show:
                report = EXPERIMENTS[experiment](
                    folder, data_dir=data_dir, progress=show, **options
                )
        except KeyboardInterrupt:
            if not parts.done:
                raise
            page = parts.page(f"{experiment}, interrupted")
            interrupted(f"{len(parts.done)} runs are kept and need not be repeated ({page}).")
        if parts.found:
            console.print(f"{parts.found} of {len(parts.done)} runs were there from before.")
        console.print(f"Report: {report}", soft_wrap=True)


@app.command()
def data(
    data_dir: DataDir = None,
    fetch: Annotated[
        list[str] | None,
        typer.Option(help="Download a file into the cache, by its key; repeatable."),
    ] = None,
) -> None:
    """Say which data files are here, and whether they are what they should be."""
    from rich.table import Table

    from hearsay import _validate as require
    from hearsay.problems.data import files

    for key in fetch or []:
        require.one_of("fetch", key, files.FILES)
        with progress_bar() as show:
            path = files.locate(key, data_dir, progress=functools.partial(show, key))
        console.print(f"{key}: {path}", soft_wrap=True)
    table = Table(title="Data files (digits and breast-cancer come with scikit-learn)")
    for column in ("key", "file", "where", "checksum"):
        table.add_column(column, overflow="fold")
    for status in files.status(data_dir):
        verdict = {True: "ok", False: "[red]WRONG[/red]", None: "-"}[status.checksum_ok]
        table.add_row(status.key, status.file.path, str(status.found or "missing"), verdict)
    console.print(table)


@app.command()
def demo(out: Out = Path("out/demo")) -> None:
    """Five hospitals in a ring learn together what none may show to the others: what that buys at
    epsilon = 1, 2 and 4, and the model that may be published. A minute or two.
    """
    from hearsay.cli.frontier import run_demo

    with folders.command():
        folder = out or Path("out/demo")
        claim(folder)
        if run_demo(folder):
            interrupted("The points that are finished are kept and will not be run again.")


def _build(config: Any) -> tuple[Any, Any, Any]:
    import jax

    from hearsay.config import build
    from hearsay.simulation.memory import choose

    if config.run.get("precision") == 64:
        jax.config.update("jax_enable_x64", True)
    if config.run.get("device"):
        choose(config.run["device"])
    return build(config)


def _typed(config: Any) -> str:
    """The name that a command must be given again, because a file alone may not import it."""
    from hearsay.algorithms import outside

    name = config.algorithm.get("name")
    return f"{name} " if outside.is_place(name) else ""


def _adjacencies(config: Any) -> tuple[Any, tuple[str, ...]]:
    """(the configuration, what to certify it under); of two neither is the problem's own."""
    if config.problem.get("adjacency") != "both":
        return config, ()
    if "epsilon" in config.privacy:
        raise ValueError(
            "--adjacency must be replace or zero-out where --epsilon chooses the noise, got both:"
            " give the noise (--noise) for both numbers of the same run"
        )
    from hearsay.privacy.adjacency import RELATIONS

    return config.without("problem", "adjacency"), tuple(RELATIONS)


def _horizon(text: str) -> Any:
    return math.inf if text.lower() in ("inf", "infinite", "infinity") else word(text)


def _with_noise(config: Any, names: Sequence[str] = ()) -> Any:
    """Defaults that make a first run work: every agent spends epsilon = 10,
    at delta = 1e-5 where the noise needs one.
    """
    from hearsay.algorithms import outside
    from hearsay.config import algorithm_builder

    given = config.privacy.get("epsilon") is not None or config.algorithm.get("noise") is not None
    config = config if given else config.merged({"privacy": {"epsilon": 10.0}})
    names = names or [config.algorithm.get("name", "ldp-online")]
    # A word that is no algorithm is refused where it is built.
    known = [name for name in names if outside.is_place(name) or name in outside.names()]
    builders = [
        inspect.signature(algorithm_builder(name, config.allowed)).parameters for name in known
    ]
    default = {b["mechanism"].default for b in builders if "mechanism" in b}
    kinds = {config.algorithm["mechanism"]} if "mechanism" in config.algorithm else default
    if config.delta is None and any(_needs_delta(kind) for kind in kinds):
        console.print("delta = 1e-05, because none was given (--delta)", style="yellow")
        config = config.merged({"privacy": {"delta": 1e-5}})
    return config


def _needs_delta(mechanism: Any) -> bool:
    from hearsay.mechanisms import MECHANISMS

    # A word that is no mechanism is refused where the algorithm is built.
    law = MECHANISMS.get(mechanism) if isinstance(mechanism, str) else None
    return law is not None and law.needs_delta


def _run(config: Any, out: Path, resume: bool, overwrite: bool, no_privacy: bool) -> None:
    from hearsay._files import write_atomically
    from hearsay.certification import unit
    from hearsay.config import dump
    from hearsay.simulation.checkpoint import NAME
    from hearsay.simulation.simulating import fulfil, promise

    claim(out)
    if (out / NAME).exists() and not resume and not overwrite:
        raise ValueError(f"{out} holds a run: --resume continues it, --overwrite replaces it")
    algorithm, problem, graph = _build(config)
    promised = promise(
        algorithm,
        problem,
        graph,
        steps=config.steps,
        budget=config.privacy.get("budget"),
        delta=config.delta,
    )
    if not promised.certificate.finite and not no_privacy:
        budgets = promised.certificate.budgets
        reason = next(b.reason for b in budgets if math.isinf(b.epsilon))
        raise ValueError(
            f"the privacy budget would be infinite ({reason}); use --no-privacy to run anyway"
        )
    if not resume:
        write_atomically(out / "config.toml", dump(config).encode())
    with progress_bar(unit(algorithm)) as show:
        result = fulfil(
            promised,
            seeds=config.seeds,
            every=config.every,
            folder=out,
            resume=resume,
            progress=functools.partial(show, "training"),
            notify=functools.partial(console.print, highlight=False, soft_wrap=True),
        )
    report = result.report(out)
    print(result.certificate)
    summary({algorithm.name: result})
    hint(result)
    if result.stopped:
        console.print(f"Stopped early: {result.stopped}", style="yellow", soft_wrap=True)
    console.print(f"Report: {report}", soft_wrap=True)
    _released(result, out / "released")
    if result.interrupted:
        console.print(
            f"Continue with: hearsay run {_typed(config)}--resume --out {out}", soft_wrap=True
        )
        raise typer.Exit(130)


def _released(result: Any, folder: Path) -> None:
    """Save the model that may be published, and say what it is; nothing where there is none."""
    if not result.releasable:
        return
    model = result.release(folder=folder)
    console.print(f"\n{model}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"Released model: {folder}", soft_wrap=True)


def main() -> None:
    """Entry point: what the user got wrong is one clear line,
    not a traceback (set HEARSAY_DEBUG=1 to see one).
    """
    try:
        app()
    except (ValueError, TypeError, OSError) as error:
        if os.environ.get("HEARSAY_DEBUG"):
            raise
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:  # before or between what the commands themselves catch
        sys.exit(130)


if __name__ == "__main__":
    main()

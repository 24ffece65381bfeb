"""What agents have spent, offline: from the ledgers and budget files that lie on this host.

Nothing is asked, nothing is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hearsay.deploy import lifetime, mark, missing, phases
from hearsay.deploy.book import SUFFIX, Book, Spent, read
from hearsay.deploy.rows import LedgerError, Overview, Row, overview


def places(given: Path) -> list[Path]:
    """The folders with runs' folders in them: of a net.toml (or the folder in which it lies), or
    the given one (or its parent, where it is that of a run).
    """
    if (given / "net.toml").is_file():
        given /= "net.toml"
    if given.is_file():
        from hearsay.deploy.settings import load

        members = load(given, settle=False).members
        for member in members:
            member.require_folder()
        return list(dict.fromkeys(member.state.parent for member in members))
    if not given.is_dir():
        raise FileNotFoundError(f"{given} is not there: give a net.toml or a folder of states")
    if any(given.glob("*.ledger")):
        return [given.parent]
    # An empty table would say that nothing was spent.
    if not any([*given.glob(f"*{SUFFIX}"), *given.glob("*/*.ledger")]):
        raise FileNotFoundError(
            f"{given} holds no budget file and no run's ledger: give a net.toml, or the folder that"
            " it calls state"
        )
    return [given]


def examined(path: Path) -> tuple[Overview, str]:
    """What a ledger says, and what is wrong where it is not the latest one."""
    marked = mark.standing_of(path)  # first: a running agent goes on meanwhile
    ledger = overview(path)
    if marked is None or marked.round < len(ledger.rows):
        return ledger, ""
    return ledger, (
        f"{path} has {len(ledger.rows)} messages, and message {marked.round} may have left: more"
        " was spent than it says"
    )


def spent(folders: list[Path]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Per agent its runs, and what its records have spent in all of them; and what is wrong with
    files that could not be read.

    A run is one ledger. `spent` is what the messages in it have cost; `counted` is what the budget
    file has entered for it: the whole plan. Where the ledger is gone, or the run was never entered,
    the one or the other is None. So is the total, where the budget file does not know all ledgers.
    """
    found, wrong = dict[str, dict[str, Any]](), list[str]()
    for folder in folders:
        files = [*folder.glob(f"*{SUFFIX}"), *folder.glob("*/*.ledger")]
        names = _names(folder, sorted({path.stem for path in files}))
        for name, former in names.items():
            book, whole = _book(folder / f"{name}{SUFFIX}", wrong)
            ledgers = [one for each in (name, *former) for one in _ledgers(folder, each, wrong)]
            runs = _runs(book.runs if book else [], ledgers)
            book = book if whole else None
            total, delta = lifetime.worst(book) if book else (None, None)
            # One agent's files in two folders are counted apart, as the agent counts them.
            found[name if name not in found else f"{name} in {folder}"] = {
                "runs": runs,
                "total": total,
                "delta": delta,
                "adjacency": lifetime.adjacency_of(book) if book else None,
                "all_collude": lifetime.worst_alone(book) if book else None,
            }
    return found, wrong


def _names(folder: Path, found: list[str]) -> dict[str, list[str]]:
    """Of agents, with those that they had before: their ledgers are of the same agent."""
    files = {name: folder / f"{name}{SUFFIX}" for name in found}
    now = {name: missing.renamed(path, missing.beside(path)) for name, path in files.items()}
    return {
        name: [before for before, path in now.items() if path is not None and path.stem == name]
        for name in found
        if now[name] is None
    }


def _book(path: Path, wrong: list[str]) -> tuple[Book | None, bool]:
    """What is in the budget file, if anything, and whether it knows all ledgers beside it."""
    begun = missing.beside(path)  # first: a running agent enters a run and begins it meanwhile
    try:
        book = read(path)
    except LedgerError as error:
        wrong.append(str(error))
        return None, False
    why = missing.incomplete(path, book, begun)
    wrong += [why] if why else []
    return (book if book.runs else None), not why


def _ledgers(folder: Path, name: str, wrong: list[str]) -> list[Overview]:
    found = []
    for path in sorted(folder.glob(f"*/{name}.ledger")):
        try:
            ledger, behind = examined(path)
        except LedgerError as error:
            wrong.append(str(error))
            continue
        found.append(ledger)
        wrong += [behind] if behind else []
    return found


def _runs(entered: list[Spent], ledgers: list[Overview]) -> list[dict[str, Any]]:
    by_instance = {
        (ledger.about["instance"], ledger.about.get("run")): ledger
        for ledger in ledgers
        if ledger.rows
    }
    rows = []
    for run in entered:
        ledger = by_instance.pop((run.instance, run.run), None)
        counted = {
            "run": run.run,
            "of": run.messages,
            "counted": run.epsilon,
            "delta": run.delta,
            "adjacency": run.adjacency,
            "began": run.at,
        }
        rows.append({**counted, "mechanism": run.mechanism, **_measured(ledger)})
    for ledger in by_instance.values():
        about = {
            "run": ledger.about.get("run"),
            "of": None,
            "counted": None,
            "delta": None,
            "adjacency": None,
            "began": ledger.rows[0].at,
        }
        rows.append({**about, "mechanism": None, **_measured(ledger)})
    return sorted(rows, key=lambda row: row["began"])


def _messages(ledger: Overview, last: Row) -> int:
    """Those that cost something: relays do not count."""
    return phases.of_ledger(ledger.about).round(last.round) + 1


def _measured(ledger: Overview | None) -> dict[str, Any]:
    last = ledger.rows[-1] if ledger is not None and ledger.rows else None
    return {
        "messages": None if last is None or ledger is None else _messages(ledger, last),
        "spent": None if last is None else last.epsilon,
        "last": None if last is None else last.at,
        "done": bool(ledger and ledger.done),
    }

"""What agents have spent, offline: from the ledgers and budget files that lie on this host.

Nothing is asked, nothing is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hearsay.deploy import lifetime, mark, phases
from hearsay.deploy.rows import LedgerError, Overview, Row, overview


def places(given: Path) -> list[Path]:
    """The folders with runs' folders in them: of a net.toml, or the given one (or its parent,
    where it is that of a run).
    """
    if given.is_file():
        from hearsay.deploy.settings import load

        return list(
            dict.fromkeys(member.state.parent for member in load(given, settle=False).members)
        )
    if not given.is_dir():
        raise FileNotFoundError(f"{given} is not there: give a net.toml or a folder of states")
    return [given.parent if any(given.glob("*.ledger")) else given]


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
    the one or the other is None.
    """
    found, wrong = dict[str, dict[str, Any]](), list[str]()
    for folder in folders:
        books, ledgers = dict[str, lifetime.Book](), dict[str, list[Overview]]()
        for path in sorted([*folder.glob("*.budget"), *folder.glob("*/*.ledger")]):
            try:
                if path.suffix == ".budget":
                    books[path.stem] = lifetime.read(path)
                else:
                    ledger, behind = examined(path)
                    ledgers.setdefault(path.stem, []).append(ledger)
                    wrong += [behind] if behind else []
            except LedgerError as error:
                wrong.append(str(error))
        for name in sorted({*books, *ledgers}):
            book = books.get(name)
            runs = _runs(book.runs if book else [], ledgers.get(name, []))
            total, delta = lifetime.worst(book) if book else (None, None)
            under = lifetime.adjacency_of(book) if book else None
            alone = lifetime.worst_alone(book) if book else None
            found[name] = {
                "runs": runs,
                "total": total,
                "delta": delta,
                "adjacency": under,
                "all_collude": alone,
            }
    return found, wrong


def _runs(entered: list[lifetime.Spent], ledgers: list[Overview]) -> list[dict[str, Any]]:
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

"""`hearsay predict`: what a released model says of new rows."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hearsay._files import write_atomically
from hearsay.cli.folders import require_writable
from hearsay.cli.json_output import answer, answering
from hearsay.cli.options import Flag
from hearsay.cli.screen import errors, note
from hearsay.simulation.own_unit import in_own_unit, unit

ACCURACY, ERROR = "accuracy", "root mean squared error"
AREA = "area under the ROC curve (guessing: 0.5)"


@answering
def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a released model.")],
    table: Annotated[Path, typer.Argument(help="New rows: a CSV, TSV or Parquet file.")],
    out: Annotated[
        Path | None, typer.Option(help="Where the predictions go (default: the screen).")
    ] = None,
    probabilities: Annotated[
        bool, Flag("--probabilities", help="Also the probability of every class.")
    ] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="A column of the table to keep, such as an identifier; repeatable."),
    ] = None,
) -> None:
    """What a released model says of new rows, as CSV with one line per row.

    The table needs no column of the target; where it has one, how good the model is on these rows
    is said on standard error.
    """
    from hearsay.release.folder import load_model
    from hearsay.tables.reading import read_table

    if out is not None:
        require_writable(out.parent)
    found, kept = load_model(model), keep or []
    if found.schema is None:
        raise ValueError(
            f"the model in {model} must have a schema to read tables, and has none: it was learned"
            " from records that were no rows of tables (hearsay.load_model)"
        )
    if probabilities and found.classes is None:
        raise ValueError(
            f"--probabilities must be left out for {found.schema.target!r}, which is a number"
        )
    rows = read_table(table)
    missing = [name for name in kept if name not in rows.columns]
    if missing:
        raise ValueError(f"--keep must name columns of {table}, which has no {missing[0]!r}")
    features, score = _read(found, table, found.schema.target in rows.columns)
    columns: dict[str, Any] = {name: _cells(rows, name) for name in kept}
    columns[f"predicted_{found.schema.target}"] = found.predict(features, encoded=True)
    if probabilities and found.classes is not None:
        each = found.predict_proba(features, encoded=True)
        columns |= {f"probability_{k}": p for k, p in zip(found.classes, each.T, strict=True)}
    for name, value in score.items():
        words = f", {unit(found.schema)}" if name == ERROR else ""
        _say(f"{name} on {table}{words}: {value:.4g}")
    answer(
        rows=len(features),
        accuracy=score.get(ACCURACY),
        error=score.get(ERROR),
        auc=score.get(AREA),
        file=out,
        columns=columns if out is None else None,
    )
    if out is None:
        print(_csv(columns), end="")
    else:
        write_atomically(out, _csv(columns).encode())
        _say(f"{len(features):,} predictions: {out}")


def _read(model: Any, path: Path, has_target: bool) -> tuple[np.ndarray, dict[str, float]]:
    """(features, how good the model is on them where the table says what is right)."""
    from hearsay.release.ranking import area

    schema = model.schema
    try:
        found = schema.encode(path, target=has_target)
    except ValueError as error:
        if not has_target:
            raise
        # The target of new patients may be a column that nobody has filled in.
        found = schema.encode(path, target=False)
        note(f"not tested: {error}")
    note(str(found.counted))
    if found.labels is None:
        return found.features, {}
    said = model.predictor.predict(model.params, found.features)
    if model.classes is None:
        wrong = float(np.mean((said - found.labels) ** 2))
        return found.features, {ERROR: in_own_unit(wrong, schema)}
    score = {ACCURACY: float(np.mean(said == found.labels))}
    ranked = area(model, found.features, found.labels)
    return found.features, score if ranked is None else {**score, AREA: ranked}


def _cells(table: Any, name: str) -> list[Any]:
    """A column as it stands in the table."""
    return [cell for block in table.blocks([name]) for cell in _plain(block.cells[name])]


def _plain(values: Any) -> Any:
    return values.tolist() if isinstance(values, np.ndarray) else values


def _csv(columns: dict[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*map(_plain, columns.values()), strict=True))
    return text.getvalue()


def _say(text: str) -> None:
    errors.print(text, markup=False, highlight=False, soft_wrap=True)

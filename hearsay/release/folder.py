"""The files of a released model.

    model.safetensors    the parameters as one vector `params`, and as metadata the algorithm, the
                         problem, how to predict with it, what it is an average of, why it costs
                         nothing, how it was made, and the digests of the other two
    certificate.json     what the run costs every agent (`hearsay verify` computes it again)
    schema.toml          of the tables that it predicts from, where it does
    made.txt             how it was made, for people; nobody reads it back

What was measured on a test set is not among it: that is about records, which no certificate covers.

`load_model` refuses what is damaged or does not belong together. The digests show damage and
mix-ups, not forgery: who changes a file can compute them anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hearsay import _validate as require
from hearsay._files import write_atomically
from hearsay._version import VERSION
from hearsay.privacy.certificate import Certificate
from hearsay.release.model import ReleasedModel
from hearsay.release.predicting import predictor
from hearsay.release.refusing import require_not_private
from hearsay.release.tensors import pack, unpack
from hearsay.tables.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL, CERTIFICATE = "model.safetensors", "certificate.json"
SCHEMA, MADE = "schema.toml", "made.txt"
FORMAT = "hearsay released model 1"
_PLAIN = ("Logistic", "Softmax", "HalfSquared", "Squared")
_USED = "To predict: hearsay predict THIS_FOLDER NEW.csv (schema.toml says which columns)."
_ALONE = """\
Without hearsay: examples/predict_with_numpy.py in its repository does it with NumPy, in 80 lines.
Numbers go from their range in schema.toml to [-1, 1] (scale = "log": their logarithms do), a
category sets one of its entries (one for each level, and one for all others) to 1; then a 1. For
classes the record is divided by its own length, for a number by the square root of the number of
columns and 1. Its product with `params` is the score: log odds of the second class, one score for
each class of several, or the number on the scale from -1 to 1, which goes back to its range."""


def save(model: ReleasedModel, folder: str | os.PathLike) -> Path:
    """Write the files into the folder; returns the folder."""
    model = replace(model, accuracy=None)
    path, certificate = Path(folder), model.certificate.to_json()
    path.mkdir(parents=True, exist_ok=True)
    facts = {
        "format": FORMAT,
        "version": VERSION,
        "algorithm": model.algorithm,
        "problem": model.problem,
        "model": json.dumps(model.predictor.facts),
        "kind": model.kind,
        "average_of": model.average_of,
        "why_free": model.why,
        "warnings": json.dumps(model.warnings),
        "accuracy": "",
        "made": json.dumps(dict(model.made)),
        "schema": "" if model.schema is None else model.schema.digest,
        "certificate": json.loads(certificate)["digest"],
    }
    facts["digest"] = digest(facts, model.params)
    # What a model rests on first: it is never there without it.
    write_atomically(path / CERTIFICATE, certificate.encode())
    if model.schema is None:
        (path / SCHEMA).unlink(missing_ok=True)  # of a model that was here before
    else:
        model.schema.save(path / SCHEMA)
    write_atomically(path / MADE, _made(model).encode())
    write_atomically(path / MODEL, b"".join(pack({"params": model.params}, facts)))
    return path


def _made(model: ReleasedModel) -> str:
    width = max(map(len, model.made), default=0)
    lines = [f"{name:<{width}}  {text}" for name, text in model.made.items()]
    found = [str(model), *(["", "How it was made:", *lines] if lines else [])]
    if model.schema is not None:
        found += ["", _USED]
        if model.predictor.facts["loss"] in _PLAIN:
            found.append(_ALONE)
    return "\n".join([*found, ""])


def load_model(path: str | os.PathLike, model: Any = None) -> ReleasedModel:
    """What `ReleasedModel.save` wrote, checked against its digests, its certificate and its schema.

    Args:
      path: the folder, or the model.safetensors in it.
      model: the Model of a network that hearsay cannot build by name (hearsay.problems.from_module
        and from_function give one); needed to predict with it only.

    Example:
      >>> import tempfile
      >>> import hearsay as hs
      >>> problem, graph = hs.problems.ridge(agents=3, records=60), hs.graphs.ring(3)
      >>> run = hs.simulate(hs.dsgd(noise=0.1), problem, graph, steps=20)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     run.release(folder=folder).params.tolist() == hs.load_model(folder).params.tolist()
      True
    """
    file = Path(path)
    if file.is_dir() and (file / MODEL).exists():
        file = file / MODEL
    require_not_private(file)
    file = file / MODEL if file.is_dir() else file
    if not file.exists():
        raise FileNotFoundError(f"there is no released model at {file}")
    arrays, facts = unpack(file.read_bytes(), str(file))
    if facts.get("format") != FORMAT or set(arrays) != {"params"}:
        require.fail(str(file), f"a {FORMAT}", facts.get("format", "another safetensors file"))
    params = arrays["params"]
    if facts.pop("digest", "") != digest(facts, params):
        raise ValueError(f"{file} is damaged: it is not as it was written (its digest)")
    if params.ndim != 1 or params.dtype.kind != "f":
        require.fail(f"params of {file}", "one vector of floating-point numbers", params.shape)
    # A file may come from anybody: nothing of it is believed before it fits the numbers.
    try:
        warnings, said = json.loads(facts["warnings"]), json.loads(facts["model"])
        # Of earlier versions, which wrote it.
        accuracy = float(facts["accuracy"]) if facts["accuracy"] else None
        average_of, kind = facts["average_of"], facts["kind"]
        algorithm, problem, proof = facts["algorithm"], facts["problem"], facts["certificate"]
        # Earlier versions wrote neither.
        made, schema = json.loads(facts.get("made", "{}")), facts.get("schema", "")
    except (KeyError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} must be a whole {FORMAT}, got {error}") from None
    if not isinstance(warnings, list) or not all(isinstance(text, str) for text in warnings):
        require.fail(f"warnings of {file}", "a list of texts", warnings)
    if not isinstance(made, dict) or not all(isinstance(text, str) for text in made.values()):
        require.fail(f"made of {file}", "texts by name", made)
    return ReleasedModel(
        params,
        average_of,
        kind,
        algorithm,
        problem,
        predictor(said, len(params), model),
        _certificate(file.with_name(CERTIFICATE), proof),
        tuple(warnings),
        accuracy,
        _schema(file.with_name(SCHEMA), schema),
        made,
    )


def _certificate(path: Path, wanted: str) -> Certificate:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not there: a released model is nothing without its certificate"
        )
    text = path.read_text(encoding="utf-8")
    found = Certificate.from_json(text)
    if json.loads(text).get("digest") != wanted:
        raise ValueError(
            f"{path} is the certificate of another run than the model beside it (its digest)"
        )
    return found


def _schema(path: Path, wanted: str) -> Schema | None:
    """The schema of that digest; "": there must be none, whose columns would be another's."""
    if not wanted:
        if path.exists():
            raise ValueError(
                f"{path} does not belong to the model beside it, which has none: move it elsewhere"
            )
        return None
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not there: the model beside it reads tables by it, and needs it to predict"
        )
    found = Schema.load(path)
    if found.digest != wanted:
        raise ValueError(
            f"{path} is another schema than that of the model beside it (its digest): columns,"
            " their order, ranges and levels must be the ones that it was learned with"
        )
    return found


def digest(facts: Mapping[str, str], params: np.ndarray) -> str:
    """Of all that a model.safetensors says."""
    found = hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode())
    little = np.ascontiguousarray(params, params.dtype.newbyteorder("<"))
    found.update(f"{little.dtype.str} {little.shape}".encode())
    found.update(little.tobytes())
    return found.hexdigest()

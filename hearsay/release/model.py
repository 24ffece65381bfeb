"""The released model: an average of messages, with the certificate that covers it.

A certificate counts every message of a run, so whatever follows from messages and public numbers
costs nothing more (post-processing). The model that an agent has for itself is not among that: no
noise has been added to it since its last message.

`ReleasedModel.save` writes two files into a folder:

    model.safetensors    the parameters as one vector `params`, and as metadata the algorithm, the
                         problem, how to predict with it, what it is an average of, why it costs
                         nothing, and the digest of the certificate
    certificate.json     what the run costs every agent (`hearsay verify` computes it again)

`load_release` reads them back and refuses what is damaged or does not belong together. The digests
show damage and mix-ups, not forgery: who changes a file can compute them anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay._files import write_atomically
from hearsay._version import VERSION
from hearsay.privacy.certificate import Certificate, show
from hearsay.release.predicting import Predictor, predictor
from hearsay.release.refusing import require_not_private
from hearsay.release.tensors import pack, unpack

MODEL, CERTIFICATE = "model.safetensors", "certificate.json"
FORMAT = "hearsay released model 1"
FREE = (
    "it is computed from messages that were sent, with their noise, and from public numbers alone:"
    " the certificate counts every one of those messages, and what follows from them costs nothing"
    " more"
)
UNBOUNDED = "NOT PRIVATE: the budget of the run is infinite"
SIMULATED = (
    "the noise of a simulation follows from its seed: whoever knows the seed can take it off again"
    " (deployed agents draw theirs from the operating system)"
)


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedModel:
    """A model that may be published, made of messages alone.

    Args:
      params: one vector.
      average_of: whose messages of which rounds, in words.
      kind: the name of the read-out (release/readouts.py).
      algorithm: the name of the algorithm that sent them.
      problem: what the data are called.
      predictor: how the parameters are used.
      certificate: what the run cost every agent.
      warnings: what keeps it from being private, or is to be known before it is published.
      accuracy: on the test set: the share of right labels, or the mean squared error of a
        regression; None where there is no test set.
    """

    params: np.ndarray
    average_of: str
    kind: str
    algorithm: str
    problem: str
    predictor: Predictor
    certificate: Certificate
    warnings: tuple[str, ...] = ()
    accuracy: float | None = None
    why: str = field(default=FREE, init=False)

    def __post_init__(self) -> None:
        params = require.array("params", self.params)
        if params.ndim != 1 or not np.all(np.isfinite(params)):
            require.fail("params", "one vector of finite numbers (did the run diverge?)", params)
        object.__setattr__(self, "params", params)
        if not self.certificate.finite and self.private:
            object.__setattr__(self, "warnings", (UNBOUNDED, *self.warnings))

    @property
    def private(self) -> bool:
        """Nothing says that it is not."""
        return not any(text.startswith("NOT PRIVATE") for text in self.warnings)

    def predict(self, features: Any) -> np.ndarray:
        """Labels (numbers, for a regression) of records whose features were prepared as the
        problem's were.
        """
        return self.predictor.predict(self.params, np.asarray(features))

    def __repr__(self) -> str:
        return f"ReleasedModel({self.algorithm} on {self.problem}: {self.average_of})"

    def __str__(self) -> str:
        slack = self.certificate.slack
        top = show(max(self.certificate.epsilon)) + ("" if slack is None else f" at {slack:g}")
        lines = [
            f"Released model: {self.algorithm} on {self.problem}, {len(self.params):,} numbers"
        ]
        lines += [f"  average of  {self.average_of}"]
        if self.accuracy is not None:
            what = "accuracy" if self.predictor.classification else "test error"
            lines.append(f"  {what:<10}  {self.accuracy:.4g}")
        lines += [f"  epsilon     at most {top} for any agent ({self.certificate.adjacency})"]
        if self.certificate.collusion:
            lines.append(f"              {self.certificate.collusion}")
        lines += [f"  free        {self.why}"]
        return "\n".join([*lines, *(f"  warning     {text}" for text in self.warnings)])

    def save(self, folder: str | os.PathLike) -> Path:
        """Write model.safetensors and certificate.json into the folder; returns the folder."""
        path, certificate = Path(folder), self.certificate.to_json()
        path.mkdir(parents=True, exist_ok=True)
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "algorithm": self.algorithm,
            "problem": self.problem,
            "model": json.dumps(self.predictor.facts),
            "kind": self.kind,
            "average_of": self.average_of,
            "why_free": self.why,
            "warnings": json.dumps(self.warnings),
            "accuracy": "" if self.accuracy is None else repr(float(self.accuracy)),
            "certificate": json.loads(certificate)["digest"],
        }
        facts["digest"] = _digest(facts, self.params)
        # The certificate first: a model is never there without it.
        write_atomically(path / CERTIFICATE, certificate.encode())
        write_atomically(path / MODEL, b"".join(pack({"params": self.params}, facts)))
        return path


def load_release(path: str | os.PathLike, model: Any = None) -> ReleasedModel:
    """What `ReleasedModel.save` wrote, checked against its digests and its certificate.

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
      ...     run.release(folder=folder).params.tolist() == hs.load_release(folder).params.tolist()
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
    if facts.pop("digest", "") != _digest(facts, params):
        raise ValueError(f"{file} is damaged: it is not as it was written (its digest)")
    if params.ndim != 1 or params.dtype.kind != "f":
        require.fail(f"params of {file}", "one vector of floating-point numbers", params.shape)
    # A file may come from anybody: nothing of it is believed before it fits the numbers.
    try:
        warnings, said = json.loads(facts["warnings"]), json.loads(facts["model"])
        accuracy = float(facts["accuracy"]) if facts["accuracy"] else None
        average_of, kind = facts["average_of"], facts["kind"]
        algorithm, problem, digest = facts["algorithm"], facts["problem"], facts["certificate"]
    except (KeyError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} must be a whole {FORMAT}, got {error}") from None
    if not isinstance(warnings, list) or not all(isinstance(text, str) for text in warnings):
        require.fail(f"warnings of {file}", "a list of texts", warnings)
    return ReleasedModel(
        params,
        average_of,
        kind,
        algorithm,
        problem,
        predictor(said, len(params), model),
        _certificate(file.with_name(CERTIFICATE), digest),
        tuple(warnings),
        accuracy,
    )


def _certificate(path: Path, digest: str) -> Certificate:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not there: a released model is nothing without its certificate"
        )
    text = path.read_text(encoding="utf-8")
    found = Certificate.from_json(text)
    if json.loads(text).get("digest") != digest:
        raise ValueError(
            f"{path} is the certificate of another run than the model beside it (its digest)"
        )
    return found


def _digest(facts: dict[str, str], params: np.ndarray) -> str:
    found = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    little = np.ascontiguousarray(params, params.dtype.newbyteorder("<"))
    found.update(f"{little.dtype.str} {little.shape}".encode())
    found.update(little.tobytes())
    return found.hexdigest()

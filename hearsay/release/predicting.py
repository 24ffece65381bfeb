"""How the parameters of a released model are used: from facts that fit into a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.problems.data.records import as_features
from hearsay.problems.losses.linear import (
    HalfSquared,
    LinearLoss,
    Logistic,
    PolynomialLogistic,
    Squared,
)
from hearsay.problems.losses.models import MODELS
from hearsay.problems.losses.neural_loss import Model, NeuralLoss, named
from hearsay.problems.task import Task

_LINEAR = {kind.__name__: kind for kind in (Logistic, Squared, HalfSquared, PolynomialLogistic)}
_AT_ONCE = 500  # records that a network scores together


@dataclass(frozen=True, eq=False)
class Predictor:
    """What turns features and parameters into labels.

    Args:
      facts: what a file says of it: the loss, the shape of one record, whether labels are classes.
      model: a network, where the loss is one's and it is at hand.
    """

    facts: dict[str, Any]
    model: Model | None = None

    @property
    def classification(self) -> bool:
        return bool(self.facts["classification"])

    def predict(self, params: np.ndarray, features: np.ndarray) -> np.ndarray:
        """One label per record."""
        shape = tuple(self.facts["shape"])
        if features.shape[1:] != shape or features.ndim != len(shape) + 1:
            require.fail(
                "features", f"of shape (records, {', '.join(map(str, shape))})", features.shape
            )
        if self.facts["loss"] in _LINEAR:
            margin = features @ params
            if not self.classification:
                return margin
            loss: LinearLoss = _LINEAR[self.facts["loss"]](feature_bound=1.0)
            return np.asarray(loss.predict(jnp.asarray(margin)))
        if self.model is None or self.model.scores is None:
            raise ValueError(
                f"model must be given to predict with {self.facts['model']}, which hearsay cannot"
                " build by name: load_release(path, model=...) takes what from_module gives"
            )
        loss_, vector = NeuralLoss(self.model, compute=self.facts["compute"]), jnp.asarray(params)
        labels = [
            jnp.argmax(loss_.scores(vector, as_features(block, vector.dtype)), axis=1)
            for block in np.array_split(features, max(1, -(-len(features) // _AT_ONCE)))
        ]
        return np.concatenate([np.asarray(part, float) for part in labels])


def of(task: Task) -> Predictor:
    """How the models of that task predict."""
    shape = [int(size) for size in task.shape]
    facts: dict[str, Any] = {"shape": shape, "classification": bool(task.classification)}
    loss = task.loss
    if not isinstance(loss, NeuralLoss):
        return Predictor({"loss": type(loss).__name__, **facts})
    facts |= {"loss": "NeuralLoss", "model": loss.model.name, "compute": loss.compute}
    if loss.model.scores is not None:
        feature = jax.ShapeDtypeStruct(task.shape, np.dtype(np.uint8 if task.bytes else np.float32))
        vector = jax.ShapeDtypeStruct((1, loss.model.size), jnp.result_type(float))
        scores = jax.eval_shape(lambda p, f: loss.scores(p[0], f[None]), vector, feature)
        facts["classes"] = int(scores.shape[1])
    facts["parameters"] = int(loss.model.size)
    # A module of somebody's may have the name of one of ours.
    ours = loss.model.name in MODELS and loss.model is _ours(facts)
    return Predictor({**facts, "named": ours}, loss.model)


def predictor(facts: dict[str, Any], model: Any = None) -> Predictor:
    """From what a file says.

    Args:
      model: the network, where it is none of hearsay's own.
    """
    require.one_of("loss of the released model", facts.get("loss"), [*_LINEAR, "NeuralLoss"])
    if facts["loss"] in _LINEAR:
        return Predictor(facts)
    found = _ours(facts) if facts.get("named") and model is None else model
    # from_module gives a model with its first parameters.
    found = found[0] if isinstance(found, tuple) else found
    if found is not None:
        require.instance("model", found, Model, "a Model (hearsay.problems.from_module makes one)")
        if found.size != facts["parameters"]:
            require.fail("model", f"of {facts['parameters']:,} parameters", f"{found.size:,}")
    return Predictor(facts, found)


def _ours(facts: dict[str, Any]) -> Model:
    return named(facts["model"], tuple(facts["shape"]), int(facts["classes"]), 0)[0]

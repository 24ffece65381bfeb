"""How the parameters of a released model are used: from facts that fit into a file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
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
from hearsay.problems.losses.softmax import Softmax
from hearsay.problems.task import Task

_LINEAR = {kind.__name__: kind for kind in (Logistic, Squared, HalfSquared, PolynomialLogistic)}
# Those whose margin is the logarithm of the odds of class 1.
_ODDS = (Logistic.__name__, PolynomialLogistic.__name__)
_SEVERAL = Softmax.__name__
_AT_ONCE = 500  # records that a network scores together


@dataclass(frozen=True, eq=False)
class Predictor:
    """What turns features and parameters into labels.

    Args:
      facts: what a file says of it: the loss, the shape of one record, whether labels are classes
        and (softmax, networks) how many.
      model: a network, where the loss is one's and it is at hand.
    """

    facts: dict[str, Any]
    model: Model | None = None

    @property
    def classification(self) -> bool:
        return bool(self.facts["classification"])

    @property
    def classes(self) -> int | None:
        """How many labels are told apart; None where labels are numbers."""
        if not self.classification:
            return None
        return 2 if self.facts["loss"] in _LINEAR else self.facts.get("classes")

    def predict(self, params: np.ndarray, features: np.ndarray) -> np.ndarray:
        """One label per record."""
        self._require_shape(features)
        if self.facts["loss"] in _LINEAR:
            margin = features @ params
            if not self.classification:
                return margin
            loss: LinearLoss = _LINEAR[self.facts["loss"]](feature_bound=1.0)
            return np.asarray(loss.predict(jnp.asarray(margin)))
        return np.argmax(self.scores(params, features), axis=1).astype(float)

    def scores(self, params: np.ndarray, features: np.ndarray) -> np.ndarray:
        """(records, classes): what a softmax makes probabilities of. A logistic model has 0 and the
        margin.
        """
        self._require_shape(features)
        if self.facts["loss"] in _ODDS:
            margin = features @ params
            return np.stack([0.0 * margin, margin], axis=1)
        if self.facts["loss"] in _LINEAR:
            require.fail(
                "the loss of the model",
                "Logistic, Softmax or a network's: only these give probabilities",
                self.facts["loss"],
            )
        if self.facts["loss"] == _SEVERAL:
            return features @ params.reshape(self.facts["classes"], -1).T
        if self.model is not None and self.model.scores is None:
            require.fail(
                "the network", "one with scores of classes (module() has it as it is)", self.model
            )
        if self.model is None:
            raise ValueError(
                f"model must be given to predict with {self.facts['model']}, which hearsay cannot"
                " build by name: load_model(path, model=...) takes what from_module gives"
            )
        loss_, vector = NeuralLoss(self.model, compute=self.facts["compute"]), jnp.asarray(params)
        found = [
            loss_.scores(vector, as_features(block, vector.dtype))
            for block in np.array_split(features, max(1, -(-len(features) // _AT_ONCE)))
        ]
        return np.concatenate([np.asarray(part, float) for part in found])

    def probabilities(self, params: np.ndarray, features: np.ndarray) -> np.ndarray:
        """(records, classes), each row with the sum 1: the softmax of the scores. Those of a
        network are as good as its training has made them.
        """
        scores = self.scores(params, features)
        grown = np.exp(scores - scores.max(axis=1, keepdims=True))
        return grown / grown.sum(axis=1, keepdims=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Programs are in no pickle: a network that has a name is built again."""
        facts = self.facts
        if facts["loss"] not in (*_LINEAR, _SEVERAL) and not facts.get("named"):
            raise TypeError(
                f"the network must be one that hearsay builds by name to be pickled, got"
                f" {facts.get('model')}: ReleasedModel.save writes its parameters"
            )
        return predictor, (facts, facts.get("parameters", self._numbers))

    @property
    def _numbers(self) -> int:
        """How many numbers a linear model has."""
        return math.prod(self.facts["shape"]) * self.facts.get("classes", 1)

    def _require_shape(self, features: np.ndarray) -> None:
        shape = tuple(self.facts["shape"])
        if features.shape[1:] != shape or features.ndim != len(shape) + 1:
            require.fail(
                "features", f"of shape (records, {', '.join(map(str, shape))})", features.shape
            )


def of(task: Task) -> Predictor:
    """How the models of that task predict."""
    shape = [int(size) for size in task.shape]
    facts: dict[str, Any] = {"shape": shape, "classification": bool(task.classification)}
    loss = task.loss
    if isinstance(loss, Softmax):
        return Predictor({"loss": _SEVERAL, **facts, "classes": loss.classes})
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


def predictor(facts: Any, size: int, model: Any = None) -> Predictor:
    """From what a file says, which may be anybody's: nothing is built before it fits the numbers
    that are there.

    Args:
      facts: as `Predictor.facts`.
      size: how many numbers the model has.
      model: the network, where it is none of hearsay's own.
    """
    require.instance("model of the released model", facts, dict, "facts by name")
    require.one_of(
        "loss of the released model", facts.get("loss"), [*_LINEAR, _SEVERAL, "NeuralLoss"]
    )
    shape = require.each(require.count)("shape of the released model", facts.get("shape"))
    require.flag("classification of the released model", facts.get("classification"))
    if facts["loss"] in _LINEAR:
        if shape != (size,):
            require.fail("shape of the released model", f"({size},), as its numbers", shape)
        return Predictor(facts)
    if facts["loss"] == _SEVERAL:
        classes = require.count("classes of the released model", facts.get("classes"), 2)
        if len(shape) != 1 or shape[0] * classes != size:
            rule = f"one number, of which {classes} classes have {size:,} numbers"
            require.fail("shape of the released model", rule, shape)
        return Predictor(facts)
    if facts.get("parameters") != size:
        require.fail(
            "parameters of the released model", f"{size:,}, as its numbers", facts.get("parameters")
        )
    require.instance("compute of the released model", facts.get("compute"), str, "a text")
    found = _fitting(facts, size) if facts.get("named") and model is None else model
    # from_module gives a model with its first parameters.
    found = found[0] if isinstance(found, tuple) else found
    if found is not None:
        require.instance("model", found, Model, "a Model (hearsay.problems.from_module makes one)")
        if found.size != size:
            require.fail("model", f"of {size:,} parameters", f"{found.size:,}")
    return Predictor(facts, found)


def _fitting(facts: dict[str, Any], size: int) -> Model:
    """A network of hearsay's own that has so many parameters, counted before any memory is asked
    for: a few bytes of a file can name one of any size.
    """
    build = MODELS[require.one_of("model of the released model", facts.get("model"), MODELS)]
    classes = require.count("classes of the released model", facts.get("classes"))
    shape = tuple(facts["shape"])
    try:
        made = eqx.filter_eval_shape(build, jax.random.key(0), shape, classes)
    except (TypeError, OverflowError) as error:
        require.fail("shape of the released model", "one of a network", (shape, str(error)))
    many = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(made) if hasattr(leaf, "shape"))
    if many != size:
        require.fail("model", f"of {size:,} parameters", f"{many:,}")
    return _ours(facts)


def _ours(facts: dict[str, Any]) -> Model:
    return named(facts["model"], tuple(facts["shape"]), int(facts["classes"]), 0)[0]

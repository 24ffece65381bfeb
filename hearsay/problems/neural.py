"""Classification with a neural network as a problem on a network of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from hearsay import _validate as require
from hearsay.problems.data.images import Images, load_images
from hearsay.problems.data.partition import partition as split
from hearsay.problems.losses.domains import Ball, Box, Domain
from hearsay.problems.losses.models import MODELS
from hearsay.problems.losses.neural_loss import Model, Network, from_module, named
from hearsay.problems.sampling.samplers import Arrivals

_BLOCK = {"cpu": 32}  # records at a time: no more than a batch needs on a CPU, enough to fill a GPU

if TYPE_CHECKING:
    from hearsay.problems.problem import Problem


def neural(
    data: str | Images = "digits",
    *,
    model: Any = "cnn-p4",
    agents: int = 5,
    partition: str = "iid",
    clip: float | str | None = 1.0,
    norm: str = "l2",
    ridge: float = 0.0,
    per_step: int = 1,
    head_start: int = 0,
    radius: float = 1e5,
    records: int | None = None,
    test_records: int | None = None,
    microbatch: int | None = None,
    compute: str = "tf32",
    data_dir: str | None = None,
    seed: int = 0,
) -> Problem:
    """A neural network on images (or records of any shape), with cross-entropy loss.

    data: "digits" (in scikit-learn), "mnist", "cifar10", or Images (hearsay.problems.from_records
    makes one). model: a name in models.py, an Equinox module that maps one record to class scores,
    or the pair that from_module or from_function gives. clip: the norm that every record's gradient
    is brought down to, in `norm` "l2" or "l1"; None (or "none") means no budget. An l1 clip keeps
    models in a box of that radius instead of a ball, because projecting onto a ball may lengthen a
    distance in l1. records, test_records: use only so many, drawn at random. microbatch, compute:
    see network.py.
    """
    # Here and not above: problem.py lists this function among its own.
    from hearsay.problems.problem import Problem, held_by

    if isinstance(model, str):
        require.one_of("model", model, MODELS)  # before a large file is read
    images = load_images(data, data_dir=data_dir) if isinstance(data, str) else data
    require.instance(
        "data",
        images,
        Images,
        "the name of an image data set, or Images (hearsay.problems.from_records)",
    )
    seed = require.natural("seed", seed)
    images = images.thinned(records, test_records, seed)
    built, start = _model(model, images, seed)
    unbounded = clip is None or (isinstance(clip, str) and clip.lower() == "none")
    loss = Network(
        built, ridge, None if unbounded else require.bound("clip", clip), norm, microbatch, compute
    )
    _try(loss, start, images)
    radius = require.bound("radius", radius)
    domain: Domain = Ball(radius) if norm == "l2" else Box(-radius, radius)
    parts = split(partition, images.labels, require.count("agents", agents), seed)
    arrivals = Arrivals(per_step, head_start, _BLOCK.get(jax.default_backend(), 1024))
    features, labels, counts = held_by(parts, images.features, images.labels, arrivals)
    return Problem(
        images.name,
        loss,
        domain,
        features,
        labels,
        counts,
        images.test_features,
        images.test_labels.astype(np.float64),
        arrivals,
        seed=seed,
        start=start,
    )


def _model(model: Any, images: Images, seed: int) -> tuple[Model, np.ndarray]:
    if isinstance(model, str):
        return named(model, images.shape, images.classes, seed)
    if isinstance(model, eqx.Module):
        return from_module(model)
    if isinstance(model, tuple) and len(model) == 2 and isinstance(model[0], Model):
        return model
    if callable(model):
        require.fail(
            "model",
            "a pair (Model, parameters) for a plain function: hearsay.problems.from_function(loss,"
            " params) makes one",
            model,
        )
    require.fail(
        "model", "a name, an Equinox module, or what hearsay.problems.from_function gives", model
    )


def _try(loss: Network, start: np.ndarray, images: Images) -> None:
    """Does the model take such a record?

    Said here, with both shapes, and not in the depths of a compiled step.
    """
    vector = jax.ShapeDtypeStruct(start.shape, np.float32)
    kind = np.uint8 if images.features.dtype == np.uint8 else np.float32
    record, label = (
        jax.ShapeDtypeStruct((1, *images.shape), kind),
        jax.ShapeDtypeStruct((1,), np.float32),
    )
    try:
        scores = (
            None
            if loss.model.scores is None
            else jax.eval_shape(loss.scores, vector, record).shape[1:]
        )
        jax.eval_shape(loss.score, vector, record, label)
    except (TypeError, ValueError, AssertionError) as error:
        shape, reason = (
            " x ".join(map(str, images.shape)),
            (str(error).splitlines() or [type(error).__name__])[0],
        )
        raise ValueError(
            f"model must take records of shape {shape} ({images.name}), but {loss.model} does not:"
            f" {reason}"
        ) from error
    if scores not in (None, (images.classes,)):
        require.fail(
            "model",
            f"one that gives {images.classes} scores, one per class",
            f"{loss.model}, shape {scores}",
        )

"""Classification with a neural network as a problem on a network of agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from hearsay import _validate as require
from hearsay.privacy.adjacency import REPLACE
from hearsay.problems.data.holdings import Facts, Holdings, deal, gather, one_each, served, sets_of
from hearsay.problems.data.images import Images, in_order, load_images
from hearsay.problems.losses.domains import Ball, Box, Domain
from hearsay.problems.losses.models import MODELS
from hearsay.problems.losses.neural_loss import Model, NeuralLoss, from_host, from_module, named
from hearsay.problems.losses.torch_host import INSTALL, TorchHost, is_torch_module
from hearsay.problems.problem import Problem, holding
from hearsay.problems.sampling.samplers import Arrivals
from hearsay.problems.task import Task

_BLOCK = {"cpu": 32}  # records at a time: no more than a batch needs on a CPU, enough to fill a GPU


@require.known_arguments
def neural(
    data: str | Images | Sequence[Images | tuple[Any, Any]] = "digits",
    *,
    model: Any = "cnn-p4",
    agents: int | None = None,
    partition: str | None = None,
    clip: float | str | None = 1.0,
    norm: str = "l2",
    ridge: float = 0.0,
    per_step: int = 1,
    head_start: int = 0,
    radius: float = 1e5,
    records: int | None = None,
    test_records: int | None = None,
    classes: int | None = None,
    test: tuple[Any, Any] | None = None,
    microbatch: int | None = None,
    compute: str = "tf32",
    data_dir: str | None = None,
    seed: int = 0,
    adjacency: str = REPLACE,
) -> Problem:
    """A neural network on images (or records of any shape), with cross-entropy loss.

    Args:
      data: "digits" (in scikit-learn), "mnist", "cifar10"; Images (hearsay.problems.from_records
        makes one); or one set per agent, [(features, labels), ...] with `classes` or
        [Images, ...], which may differ in length.
      model: a name in models.py, an Equinox module that maps one record to class scores, or the
        pair that from_module or from_function gives.
      agents: how many (5 unless given); with one set per agent it follows from them.
      partition: the rule that deals out one data set ("iid" unless given).
      clip: the norm that every record's gradient is brought down to; None (or "none") means no
        budget.
      norm: "l2" or "l1". An l1 clip keeps models in a box of that radius instead of a ball,
        because projecting onto a ball may lengthen a distance in l1.
      ridge: the regulariser is ridge / 2 times the squared norm of the model.
      per_step: records that reach each agent per step.
      head_start: records that each agent holds before step 0.
      radius: of the ball (or box) that models are projected onto.
      records: use only so many of one data set, drawn at random.
      test_records: use only so many of its test set.
      classes: with pairs (features, labels): how many there are, whichever these records have.
      test: with one set per agent: a pair (features, labels) to test on, beside what Images bring;
        without any there are no test metrics.
      microbatch: see neural_loss.py.
      compute: see neural_loss.py.
      data_dir: folder of raw files, for the named sets that need one.
      seed: of the model's start, the partition and the sampling.
      adjacency: what certificates protect, "replace" (one record is replaced by any other) or
        "zero-out" (by an empty one; privacy/adjacency.py).

    Example:
      >>> import hearsay as hs
      >>> problem = hs.problems.neural("digits", model="mlp", agents=2, records=100)
      >>> problem.loss.model
      mlp with 17,226 parameters
    """
    if isinstance(model, str):
        require.one_of("model", model, MODELS)  # before a large file is read
    if is_torch_module(model):
        require.fail(
            "model",
            "an Equinox module, or the pair that from_function gives; a PyTorch module goes with"
            f" its own data sets: hearsay.problems.from_torch(module, dataset) ({INSTALL})",
            type(model).__name__,
        )
    seed = require.seed("seed", seed)
    if one_each(data):
        limits = {"records": records, "test_records": test_records}
        held = _one_each(data, agents, partition, classes, test, limits)  # type: ignore[arg-type]
    else:
        for name, value in {"classes": classes, "test": test}.items():
            if value is not None:
                why = "left out where one data set is dealt out (it has its own)"
                require.fail(name, why, value)
        images = load_images(data, data_dir=data_dir) if isinstance(data, str) else data
        require.instance(
            "data",
            images,
            Images,
            "the name of an image data set, Images (hearsay.problems.from_records), or a list with"
            " one set for every agent",
        )
        assert isinstance(images, Images)
        held = deal(images.subset(records, test_records, seed), agents, partition, seed)
    task = neural_task(
        held.facts,
        model=model,
        clip=clip,
        norm=norm,
        ridge=ridge,
        per_step=per_step,
        head_start=head_start,
        radius=radius,
        microbatch=microbatch,
        compute=compute,
        seed=seed,
        adjacency=adjacency,
    )
    return holding(task, held.records, held.test_features, held.test_labels.astype(np.float64))


@require.known_arguments
def neural_task(
    data: Facts,
    *,
    model: Any = "cnn-p4",
    clip: float | str | None = 1.0,
    norm: str = "l2",
    ridge: float = 0.0,
    per_step: int = 1,
    head_start: int = 0,
    radius: float = 1e5,
    microbatch: int | None = None,
    compute: str = "tf32",
    seed: int = 0,
    adjacency: str = REPLACE,
) -> Task:
    """What is public of `neural` on such data; arguments as there."""
    built, start = _model(model, data, seed)
    unbounded = clip is None or (isinstance(clip, str) and clip.lower() == "none")
    loss = NeuralLoss(
        built, ridge, None if unbounded else require.bound("clip", clip), norm, microbatch, compute
    )
    _try(loss, start, data)
    radius = require.bound("radius", radius)
    domain: Domain = Ball(radius) if norm == "l2" else Box(-radius, radius)
    arrivals = Arrivals(per_step, head_start, _BLOCK.get(jax.default_backend(), 1024))
    served(arrivals, data.counts)
    return Task(
        data.name,
        loss,
        domain,
        data.shape,
        data.counts,
        arrivals,
        seed=seed,
        start=start,
        bytes=data.bytes,
        adjacency=adjacency,
        schema=data.schema,
    )


def _one_each(
    data: Sequence[Any],
    agents: int | None,
    rule: str | None,
    classes: int | None,
    test: Any,
    limits: dict[str, int | None],
) -> Holdings:
    for name, value in limits.items():
        if value is not None:
            require.fail(name, "left out where data are one set per agent", value)
    pairs = any(not isinstance(one, Images) for one in data)
    if pairs and classes is None:
        why = "the model has one score for each, whichever classes these records have"
        raise ValueError(f"classes must be given with pairs (features, labels), got None: {why}")
    if not pairs and classes is not None:
        require.fail("classes", "left out where every agent's Images have their own", classes)

    def make(features: Any, labels: Any) -> Images:
        assert classes is not None
        return in_order(features, labels, classes=classes)

    held = gather(sets_of(data, Images, make, agents, rule))
    if test is None:
        return held
    if not isinstance(test, (list, tuple)) or len(test) != 2:
        require.fail("test", "a pair (features, labels)", type(test).__name__)
    try:
        one = in_order(*test, classes=held.facts.classes)
    except ValueError as error:
        raise ValueError(f"test: {error}") from error
    if one.shape != held.facts.shape or one.features.dtype != held.records.features.dtype:
        rule = f"records of shape {held.facts.shape} and type {held.records.features.dtype}"
        require.fail("test", rule, f"{one.shape} and {one.features.dtype}")
    return held._replace(
        test_features=np.concatenate([held.test_features, one.features]),
        test_labels=np.concatenate([held.test_labels, one.labels]),
    )


def _model(model: Any, images: Facts, seed: int) -> tuple[Model, np.ndarray]:
    if isinstance(model, str):
        return named(model, images.shape, images.classes, seed)
    if isinstance(model, eqx.Module):
        return from_module(model)
    if isinstance(model, tuple) and len(model) == 2 and isinstance(model[0], Model):
        return model
    if is_torch_module(model):
        host = TorchHost(model, images.shape, "cross-entropy")
        return from_host(host, host.name, module=host.filled), host.first
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


def _try(loss: NeuralLoss, start: np.ndarray, images: Facts) -> None:
    """Does the model take such a record?

    Said here, with both shapes, and not in the depths of a compiled step.
    """
    vector = jax.ShapeDtypeStruct(start.shape, np.float32)
    kind = np.uint8 if images.bytes else np.float32
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

"""Problems from PyTorch: a module and the data sets that torch users have (extra `torch`).

The module's own forward is what is trained: records' gradients are taken, clipped and added up in
torch (losses/torch_host.py), everything else is as for any other network. A module given to
`neural_task` becomes the same model: that is how deployed agents get theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.privacy.adjacency import REPLACE
from hearsay.problems.data.holdings import AGENTS, RULE, Facts
from hearsay.problems.data.images import in_order
from hearsay.problems.data.partition import partition as split
from hearsay.problems.data.records import padded
from hearsay.problems.losses.neural_loss import Model, NeuralLoss, from_host
from hearsay.problems.losses.torch_host import (
    TorchHost,
    filled_in,
    is_torch_module,
    require_torch,
)
from hearsay.problems.neural_networks import neural_task
from hearsay.problems.problem import Problem, holding
from hearsay.problems.task import Task

Rows = tuple[np.ndarray, np.ndarray]


@require.plain_arguments
def from_torch(
    module: Any,
    dataset: Any,
    *,
    loss: str | Callable[[Any, Any], Any] = "cross-entropy",
    classes: int | None = None,
    test: Any = None,
    agents: int | None = None,
    partition: str | None = None,
    clip: float | str | None = 1.0,
    norm: str = "l2",
    ridge: float = 0.0,
    per_step: int = 1,
    head_start: int | None = None,
    radius: float = 1e5,
    microbatch: int | None = None,
    seed: int = 0,
    adjacency: str = REPLACE,
    name: str | None = None,
) -> Problem:
    """A PyTorch module on PyTorch data sets; needs the extra `torch`.

    Agents begin with the module's parameters as they are. What does not require a gradient, and
    all buffers, stay fixed. BatchNorm is refused: with it there is no gradient of one record.
    Dropout is refused in training mode: call `module.eval()` first, which leaves it out. So is a
    module that keeps anything from one call to the next: one serves all agents and seeds.

    Args:
      module: a torch.nn.Module on the CPU, from a batch of records to a row of scores each.
      dataset: a torch Dataset of pairs (features, label), which is dealt out, or a list with one
        for every agent. Items are read once; bytes reach the module as v / 255.
      loss: "cross-entropy", "mse" (one output, labels are numbers), or a function
        (scores, label) of one record, both tensors, that gives one number.
      classes: how many there are; the module's number of scores unless given. With a loss of your
        own it says that labels are classes, and without it they are numbers.
      test: a Dataset to test on.
      agents: how many (5 unless given); with one data set per agent it follows from them.
      partition: the rule that deals out one data set ("iid" unless given).
      clip: the norm that every record's gradient is brought down to; None (or "none") means no
        budget.
      norm: "l2" or "l1", as for `neural`.
      ridge: the regulariser is ridge / 2 times the squared norm of the model.
      per_step: records that reach each agent per step.
      head_start: records that each agent holds before step 0; all of them unless given.
      radius: of the ball (or box) that models are projected onto.
      microbatch: the most records whose gradients are held at once.
      seed: of the partition and the sampling.
      adjacency: what certificates protect, as for `neural`.
      name: what reports call the data; the data set's class unless given.

    Example:
      >>> import torch
      >>> import hearsay as hs
      >>> rows = torch.utils.data.TensorDataset(torch.randn(60, 4), torch.arange(60) % 3)
      >>> problem = hs.problems.from_torch(torch.nn.Linear(4, 3), rows, agents=3, clip=0.5)
      >>> problem.dimension, problem.change
      (15, 1.0)
    """
    require_torch()
    seed = require.seed("seed", seed)
    sets = _sets(dataset, agents, partition, seed)
    shape = sets[0][0].shape[1:]
    pair = torch_model(module, shape, loss=loss, classes=classes)
    scored = pair[0].scores is not None
    many = pair[0].host.outputs  # type: ignore[union-attr]
    one_name = name or type(dataset[0] if _several(dataset) else dataset).__name__
    known = [_checked(f"dataset of agent {i}", *one, many, scored) for i, one in enumerate(sets)]
    records = padded([len(labels) for _, labels in known], known)
    facts = Facts(
        one_name, shape, records.held, classes=many, bytes=records.features.dtype == np.uint8
    )
    task = neural_task(
        facts,
        model=pair,
        clip=clip,
        norm=norm,
        ridge=ridge,
        per_step=per_step,
        head_start=int(records.held.max()) if head_start is None else head_start,
        radius=radius,
        microbatch=microbatch,
        compute="float32",
        seed=seed,
        adjacency=adjacency,
    )
    task = replace(task, classification=scored)
    if test is None:
        return holding(task, records)
    tested = _checked("test", *rows_of("test", test), many, scored)
    _require_alike("test", tested[0], known[0][0])
    return holding(task, records, *tested)


@require.plain_arguments
def torch_model(
    module: Any,
    shape: Sequence[int],
    *,
    loss: str | Callable[[Any, Any], Any] = "cross-entropy",
    classes: int | None = None,
) -> tuple[Model, np.ndarray]:
    """A Model from a PyTorch module, and its parameters as they are in the module.

    Args:
      module: as for `from_torch`.
      shape: of one record's features.
      loss: as for `from_torch`.
      classes: as for `from_torch`.

    Example:
      >>> import torch
      >>> import hearsay as hs
      >>> model, first = hs.problems.torch_model(torch.nn.Linear(4, 3), (4,))
      >>> model
      Linear with 15 parameters
    """
    host = TorchHost(module, require.each(require.count)("shape", shape), loss)
    classes = require.optional(lambda name, value: require.count(name, value, 2))(
        "classes", classes
    )
    if loss == "mse" and classes is not None:
        require.fail("classes", "left out with mse, whose labels are numbers", classes)
    scored = loss == "cross-entropy" or classes is not None
    if scored and host.outputs < 2:
        require.fail("module", "one that gives a score for each of two or more classes", 1)
    if classes not in (None, host.outputs):
        require.fail("classes", f"the {host.outputs} that {host.name} gives scores for", classes)
    return from_host(host, host.name, scored=scored, module=host.filled), host.first


def state_dict(source: Any, params: Any) -> dict[str, Any]:
    """Parameters as a state_dict, for `module.load_state_dict`.

    What is not trained (buffers, parameters that require no gradient) is as in the module.

    Args:
      source: a problem of `from_torch`, its task or model, or the module itself.
      params: one vector of parameters, such as those of a run's agent, or a released model.

    Example:
      >>> import torch
      >>> import hearsay as hs
      >>> module = torch.nn.Linear(2, 1, bias=False)
      >>> hs.problems.state_dict(module, [3.0, 4.0])
      {'weight': tensor([[3., 4.]])}
    """
    require_torch()
    if is_torch_module(source):
        filled = source
    else:
        loss = source.loss if isinstance(source, Task) else None
        model = loss.model if isinstance(loss, NeuralLoss) else source
        if not isinstance(model, Model) or not isinstance(model.host, TorchHost):
            rule = "a problem of hearsay.problems.from_torch, its task or model, or a torch module"
            require.fail("source", rule, source)
        filled = model.host.module
    vector = require.array("params", getattr(params, "params", params))
    return {n: t.detach().clone() for n, t in filled_in(filled, vector).state_dict().items()}


@require.plain_arguments
def built(build: Callable[[], Any], seed: int) -> Any:
    """What a function builds; where torch is in use, from that seed, so that all who build it begin
    with the same parameters.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return build()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def rows_of(name: str, dataset: Any) -> Rows:
    """(features, labels) of a torch Dataset, every item read once, in its order."""
    import torch

    tensors = getattr(dataset, "tensors", None)
    if tensors is None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            require.fail(name, "a torch Dataset with a length", type(dataset).__name__)
        items = [dataset[i] for i in range(len(dataset))]
        if not items or not all(isinstance(one, (tuple, list)) and len(one) == 2 for one in items):
            require.fail(name, "one or more pairs (features, label)", _odd(items))
        try:
            parts = zip(*items, strict=True)
            tensors = [torch.stack([torch.as_tensor(one) for one in part]) for part in parts]
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{name} must have features of one shape and a number as label in every item"
                f" (transforms belong into the Dataset): {error}"
            ) from error
    if len(tensors) != 2 or tensors[0].ndim < 2 or not len(tensors[0]):
        got = [tuple(part.shape) for part in tensors]
        require.fail(name, "one or more pairs (features with an axis or more, label)", got)
    features, labels = (part.detach().cpu() for part in tensors)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != features.shape[:1]:
        require.fail(f"labels of {name}", "one number for every record", tuple(labels.shape))
    if features.dtype != torch.uint8 and not features.is_floating_point():
        rule = "floating-point numbers, or bytes (v / 255): .float() them, and .long() in forward"
        require.fail(f"features of {name}", rule, features.dtype)
    kept = features if features.dtype == torch.uint8 else features.float()
    return kept.numpy(), labels.double().numpy()


def _odd(items: list) -> str:
    return f"{type(items[0]).__name__} as an item" if items else "no item"


def _several(dataset: Any) -> bool:
    return isinstance(dataset, (list, tuple))


def _sets(dataset: Any, agents: int | None, rule: str | None, seed: int) -> list[Rows]:
    """Every agent's records, in order of arrival."""
    if not _several(dataset):
        features, labels = rows_of("dataset", dataset)
        count = AGENTS if agents is None else require.count("agents", agents)
        parts = split(RULE if rule is None else rule, labels, count, seed)
        return [(features[rows], labels[rows]) for rows in parts]
    if not dataset:
        require.fail("dataset", "one for every agent", "an empty list")
    if rule is not None:
        require.fail("partition", "left out where there is one data set per agent", rule)
    if agents is not None and require.count("agents", agents) != len(dataset):
        require.fail("agents", f"left out, or the {len(dataset)} that have a data set", agents)
    sets = [rows_of(f"dataset of agent {i}", one) for i, one in enumerate(dataset)]
    for number, (features, _) in enumerate(sets):
        _require_alike(f"dataset of agent {number}", features, sets[0][0])
    return sets


def _checked(name: str, features: np.ndarray, labels: np.ndarray, many: int, scored: bool) -> Rows:
    try:
        if scored:
            in_order(features, labels, classes=many)
        elif not np.isfinite(labels).all() or not np.isfinite(features).all():
            require.fail("features and labels", "finite numbers", "one that is not")
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return features, labels


def _require_alike(name: str, features: np.ndarray, first: np.ndarray) -> None:
    kinds = [(part.shape[1:], str(part.dtype)) for part in (features, first)]
    if kinds[0] != kinds[1]:
        require.fail(name, f"records of shape and type {kinds[1]}, as agent 0's", kinds[0])

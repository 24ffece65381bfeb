"""PyTorch modules as models: per-record gradients by torch.func, clipped and added up in torch.

Parameters are one vector, in the order of `named_parameters`: those that require a gradient. The
others, and all buffers, stay as they are in the module. A record goes through a copy of the module
by itself, as a batch of one (`functional_call` under `grad` under `vmap`), on the CPU, in the
precision of the run: float64 where jax is set to it, whatever the module was made in.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hearsay import _validate as require
from hearsay.problems.losses.hosts import Host, as_numbers
from hearsay.problems.losses.torch_clipping import blocks, clipped_sum, suited
from hearsay.problems.losses.torch_refusals import (
    cannot,
    copied,
    line,
    refuse_change,
    refuse_memory,
    refuse_mixing,
)
from hearsay.problems.losses.torch_state import of_tensors, snapshot

LOSSES = ("cross-entropy", "mse")
OneLoss = Callable[[Any, Any], Any]
INSTALL = "pip install 'hearsay-dp[torch]'"


def require_torch() -> Any:
    """The library, or a sentence that says what to install."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"torch must be installed for models that are PyTorch modules: {INSTALL}"
        ) from error
    return torch


def is_torch_module(model: Any) -> bool:
    """A torch.nn.Module; known without importing torch."""
    return any(
        kind.__name__ == "Module" and kind.__module__.partition(".")[0] == "torch"
        for kind in type(model).__mro__
    )


class TorchHost(Host):
    """A module and a loss of one record.

    Args:
      module: maps a batch of records to scores.
      shape: of one record.
      loss: "cross-entropy", "mse" or a function (scores, label) of one record.
    """

    def __init__(self, module: Any, shape: tuple[int, ...], loss: str | OneLoss) -> None:
        torch = require_torch()
        require.instance("module", module, torch.nn.Module, "a torch.nn.Module")
        refuse_mixing(module)
        self.module, self.shape = copied(module), tuple(shape)
        self.loss, self._loss = loss, _loss_of(loss)
        own = dict(self.module.named_parameters())
        trained = {n: p for n, p in own.items() if p.requires_grad and p.numel()}
        if not trained:
            require.fail("module", "one with parameters that require a gradient", type(module))
        self.shapes = {name: tuple(p.shape) for name, p in trained.items()}
        self.size = sum(map(math.prod, self.shapes.values()))
        # By name, of tensors that several names share once: functional_call ties them again.
        every = own | dict(self.module.named_buffers())
        # What calls leave in it is never in `module`, which is what is given back. All tensors are
        # replaced in a call, so that it needs none of its own.
        self._called = copy.deepcopy(self.module, {id(tensor): tensor for tensor in every.values()})
        for name, tensor in every.items():
            if tensor.device.type != "cpu" or tensor.is_complex():
                where = f"{name} on {tensor.device} ({tensor.dtype})"
                require.fail("module", "real numbers on the CPU (module.cpu())", where)
        self.fixed = {n: t.detach() for n, t in every.items() if n not in trained}
        self.first = np.concatenate([_array(p).ravel() for p in trained.values()])
        self.outputs = self._tried()

    @property
    def name(self) -> str:
        return type(self.module).__name__

    def gradient_sum(
        self,
        vector: np.ndarray,
        features: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        *,
        clip: float | None,
        norm: str,
        microbatch: int | None,
    ) -> np.ndarray:
        import torch

        params, total = self._params(vector), np.zeros(self.size, vector.dtype)
        fixed = self._fixed(_kind(vector.dtype))
        most = min(microbatch or len(weights), suited(self.size, vector.itemsize))
        for rows, own in blocks(weights, most):
            record = (as_numbers(part[rows], vector.dtype) for part in (features, labels))
            gradients = self._gradients(params, fixed, *map(torch.from_numpy, record))
            flat = [gradient.reshape(len(rows), -1) for gradient in gradients.values()]
            total += clipped_sum(flat, torch.from_numpy(own), clip, norm)
        return total

    def _gradients(
        self, params: dict[str, Any], fixed: dict[str, Any], features: Any, labels: Any
    ) -> dict[str, Any]:
        """(records, ...) of every parameter."""
        from torch.func import grad, vmap

        value = lambda p, x, y: self._one_value(p, fixed, x, y)  # noqa: E731
        return vmap(grad(value), in_dims=(None, 0, 0))(params, features, labels)

    def values(self, vector: np.ndarray, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
        import torch
        from torch.func import vmap

        fixed, params = self._fixed(_kind(vector.dtype)), self._params(vector)
        value = vmap(lambda x, y: self._one_value(params, fixed, x, y))
        with torch.no_grad():
            return value(torch.from_numpy(features), torch.from_numpy(labels)).numpy()

    def scores(self, vector: np.ndarray, features: np.ndarray) -> np.ndarray:
        import torch
        from torch.func import vmap

        fixed, params = self._fixed(_kind(vector.dtype)), self._params(vector)
        with torch.no_grad():
            found = vmap(lambda x: self._one_scores(params, fixed, x))(torch.from_numpy(features))
        return found.reshape(len(features), -1).numpy()

    def program(self, shape: tuple[int, ...], dtype: np.dtype) -> bytes:
        """Of the operations that the module takes, one record's, and of all that is not trained."""
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx

        kind = _kind(dtype)
        params, fixed = self._params(np.zeros(self.size, dtype)), self._fixed(kind)
        record = torch.zeros(shape, dtype=kind), torch.zeros((), dtype=kind)
        traced = make_fx(lambda *given: self._one_value(*given))(params, fixed, *record)
        found = hashlib.sha256(repr((traced.code, self.shapes)).encode())
        constants = {**dict(traced.named_buffers()), **vars(traced)}
        held = {n: t for n, t in constants.items() if isinstance(t, torch.Tensor)}
        for name, tensor in sorted({**fixed, **held}.items()):
            found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            found.update(_array(tensor).tobytes())
        return found.digest()

    def record_bytes(self, shape: tuple[int, ...], dtype: np.dtype) -> int:
        """All that a forward pass keeps for the backward one, twice, and the gradient with a copy
        of it.
        """
        import torch

        held = [0]

        def count(tensor: Any) -> Any:
            held[0] += tensor.numel()
            return tensor

        kind = _kind(dtype)
        params = {n: p.requires_grad_() for n, p in self._params(np.zeros(self.size)).items()}
        params = {n: p.to(kind) for n, p in params.items()}
        record = torch.zeros(shape, dtype=kind), torch.zeros((), dtype=kind)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            self._one_value(params, self._fixed(kind), *record)
        return (2 * held[0] + 2 * self.size) * np.dtype(dtype).itemsize

    def filled(self, vector: Any) -> Any:
        """The module with these parameters: a copy."""
        return filled_in(self.module, np.asarray(vector, np.float64))

    def _params(self, vector: np.ndarray) -> dict[str, Any]:
        import torch

        sizes = [math.prod(shape) for shape in self.shapes.values()]
        parts = torch.from_numpy(np.array(vector)).split(sizes)
        return {
            name: part.view(shape)
            for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)
        }

    def _fixed(self, kind: Any) -> dict[str, Any]:
        return {n: t.to(kind) if t.is_floating_point() else t for n, t in self.fixed.items()}

    def _one_scores(self, params: dict[str, Any], fixed: dict[str, Any], feature: Any) -> Any:
        return self._forward(params, fixed, feature)[0]

    def _forward(self, params: dict[str, Any], fixed: dict[str, Any], feature: Any) -> Any:
        """What the module makes of a batch of one."""
        from torch.func import functional_call

        return functional_call(self._called, {**params, **fixed}, (feature[None],))

    def _one_value(self, params: dict[str, Any], fixed: dict[str, Any], x: Any, y: Any) -> Any:
        return self._loss(self._one_scores(params, fixed, x), y)

    def _tried(self) -> int:
        """How many scores the module gives; what it cannot do is said here, and not in the depths
        of a run.
        """
        import torch

        rng, params = np.random.default_rng(0), self._params(self.first.astype(np.float32))
        other = self._params(rng.uniform(-1, 1, self.size).astype(np.float32))
        # So small that it is index 0 also for a module that takes bytes (v / 255) as indices.
        small = rng.uniform(0, 2**-9, (2, 1, *self.shape)).astype(np.float32)
        record, another = ((torch.from_numpy(x), torch.zeros(1)) for x in small)
        # A copy, so that what the module writes to a buffer is seen here and not kept.
        fixed = {n: t.clone() for n, t in self._fixed(torch.float32).items()}
        held = lambda: (snapshot(self._called), of_tensors(fixed))  # noqa: E731
        before = held()
        outputs = self._outputs(params, fixed, record[0][0])

        def gradients(point: dict[str, Any], rows: tuple[Any, Any]) -> dict[str, Any]:
            # After every call: what torch.func left in a module must not be computed with.
            refuse_change(self._called, before, held())
            try:
                return self._gradients(point, fixed, *rows)
            except Exception as error:
                raise ValueError(cannot(self.name, error)) from error

        first = gradients(params, record)
        gradients(other, another)
        refuse_memory(self.name, first, gradients(params, record))
        refuse_change(self._called, before, held())
        return outputs

    def _outputs(self, params: dict[str, Any], fixed: dict[str, Any], feature: Any) -> int:
        import torch

        shape = " x ".join(map(str, self.shape))
        try:
            with torch.no_grad():
                found = self._forward(params, fixed, feature)
        except Exception as error:
            raise ValueError(
                f"module must take records of shape {shape}, one at a time as a batch of one, but"
                f" {self.name} does not: {line(error)}"
            ) from error
        if not isinstance(found, torch.Tensor) or found.ndim > 2 or found.shape[:1] != (1,):
            got = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
            require.fail("module", "one that gives a row of scores for a record", got)
        outputs = found.numel()
        if self.loss == "mse" and outputs != 1:
            require.fail("module", "one that gives one number for a record with mse", outputs)
        return outputs


def filled_in(module: Any, vector: np.ndarray) -> Any:
    """A copy of the module with these parameters, in its own precisions."""
    import torch

    filled = copy.deepcopy(module)
    trained = [p for p in filled.parameters() if p.requires_grad and p.numel()]
    sizes = [parameter.numel() for parameter in trained]
    if vector.shape != (sum(sizes),):
        require.fail("params", f"one vector of {sum(sizes):,} numbers", vector.shape)
    with torch.no_grad():
        for parameter, part in zip(trained, np.split(vector, np.cumsum(sizes)[:-1]), strict=True):
            parameter.copy_(torch.from_numpy(part.copy()).view(parameter.shape))
    return filled


def _loss_of(loss: str | OneLoss) -> OneLoss:
    """Of one record, from (scores, label); a label is a number of the scores' type."""
    from torch.nn import functional

    if callable(loss):
        return loss
    require.one_of("loss", loss, LOSSES)
    if loss == "mse":
        return lambda scores, label: (scores.reshape(()) - label).square()
    return lambda scores, label: functional.cross_entropy(scores, label.long())


def _kind(dtype: Any) -> Any:
    import torch

    return torch.float64 if np.dtype(dtype) == np.float64 else torch.float32


def _array(tensor: Any) -> np.ndarray:
    found = tensor.detach()
    return (found.double() if found.is_floating_point() else found).numpy()

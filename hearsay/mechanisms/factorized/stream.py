"""Correlated noise, round by round: the rows of D xi for a factorization A = B C of the prefix sums
(mechanisms/factorized/kinds.py).

    noise of round r = D[r] xi = sum_w D[r, w] xi_w,
    so that the prefix sums of the noise are B xi,
    xi_w standard normal, drawn from fold_in(key, w)

Nothing of size R x d is ever held, because any xi_w can be drawn again from its key, in the order
in which it is needed:

    identity, tree    a round draws the few xi that its row uses (tree: fewer than two on average)
                      d times a small number
    toeplitz, dense   a block of rounds is D[block, :] xi, summed over chunks of xi
                      (2 block + chunk) d, R^2 / 2 block draws
    blt               one filter (1 - p_i z) / (1 - q_i z) after another, one vector of memory each
                      buffers d
    banded            noise_r = (xi_r - sum_{0 < j < bands} c_j noise_{r-j}) / c_0
                      (bands - 1) d

`noise_stream` hands out one round after the other and can be stopped and resumed. `draw_rounds` is
the pure function for compiled simulations. The scale V is left to the caller.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hearsay import _validate as require
from hearsay.mechanisms.gaussian import Gaussian

if TYPE_CHECKING:
    from hearsay.mechanisms.factorized.kinds import Factorization

_CHUNK = 32  # xi drawn at once: enough for an efficient matrix product
_BLOCK_BYTES, _LONGEST_BLOCK = 16 * 2**20, 256  # rounds worked out at once; fewer cost more drawing


class Rows(ABC):
    """D as device arrays: what `draw_rounds` needs to know of a factorization."""

    horizon: jax.Array

    @abstractmethod
    def noise(
        self, key: jax.Array, rounds: jax.Array, shape: tuple[int, ...], dtype: Any, chunk: int
    ) -> jax.Array:
        """The noise of those rounds, (rounds, *shape); anything for a round past the horizon."""


class _Columns(Rows):
    """A block of rounds is a product of rows of D with all xi that they use, chunk by chunk."""

    @abstractmethod
    def first(self, start: jax.Array) -> jax.Array:
        """The first column that round `start` uses."""

    @abstractmethod
    def block(self, rounds: jax.Array, columns: jax.Array) -> jax.Array:
        """D at those rounds and columns."""

    def noise(
        self, key: jax.Array, rounds: jax.Array, shape: tuple[int, ...], dtype: Any, chunk: int
    ) -> jax.Array:
        first, stop = self.first(jnp.min(rounds)), jnp.max(rounds) + 1

        def add(index: jax.Array, total: jax.Array) -> jax.Array:
            columns = first + index * chunk + jnp.arange(chunk)
            fresh = jax.vmap(lambda w: _fresh(key, w, shape, dtype))(columns)
            return total + jnp.tensordot(
                self.block(rounds, columns), fresh, axes=1, precision="highest"
            )

        return jax.lax.fori_loop(
            0, -(-(stop - first) // chunk), add, jnp.zeros((len(rounds), *shape), dtype)
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ToeplitzRows(_Columns):
    """D[r, w] = coefficients[r - w], zero past the last coefficient."""

    coefficients: jax.Array
    horizon: jax.Array

    @staticmethod
    def of(coefficients: np.ndarray, rounds: int, dtype: Any) -> ToeplitzRows:
        return ToeplitzRows(jnp.asarray(coefficients, dtype), jnp.asarray(rounds, jnp.int32))

    def first(self, start: jax.Array) -> jax.Array:
        return jnp.maximum(start - (len(self.coefficients) - 1), 0)

    def block(self, rounds: jax.Array, columns: jax.Array) -> jax.Array:
        lags = rounds[:, None] - columns[None, :]
        inside = (lags >= 0) & (lags < len(self.coefficients))
        return jnp.where(inside, self.coefficients[jnp.where(inside, lags, 0)], 0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class DenseRows(_Columns):
    """D itself, lower triangular."""

    matrix: jax.Array
    horizon: jax.Array

    @staticmethod
    def of(matrix: np.ndarray, rounds: int, dtype: Any) -> DenseRows:
        return DenseRows(jnp.asarray(matrix, dtype), jnp.asarray(rounds, jnp.int32))

    def first(self, start: jax.Array) -> jax.Array:
        return jnp.zeros_like(start)

    def block(self, rounds: jax.Array, columns: jax.Array) -> jax.Array:
        return self.matrix.at[rounds[:, None], columns[None, :]].get(mode="fill", fill_value=0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class TreeRows(Rows):
    """D[r] is +1 at columns[r, 0] and -1 at columns[r, 1:counts[r]]."""

    counts: jax.Array
    columns: jax.Array
    horizon: jax.Array

    @staticmethod
    def of(counts: np.ndarray, columns: np.ndarray, rounds: int) -> TreeRows:
        parts = (jnp.asarray(part, jnp.int32) for part in (counts, columns, rounds))
        return TreeRows(*parts)

    def noise(
        self, key: jax.Array, rounds: jax.Array, shape: tuple[int, ...], dtype: Any, chunk: int
    ) -> jax.Array:
        def one(r: jax.Array) -> jax.Array:
            less = lambda i, total: total - _fresh(key, self.columns[r, i], shape, dtype)  # noqa: E731
            first = _fresh(key, self.columns[r, 0], shape, dtype)
            return jax.lax.fori_loop(1, self.counts[r], less, first)

        return jax.lax.map(one, rounds)


# The stream of what a step draws beside its correlated noise.
COINS = 2**31


def stream_key(key: jax.Array, stream: int) -> jax.Array:
    """The key of one stream of noise: that of message field 0 is the key itself, from which the xi
    of its rounds are folded in; others branch off where no round is.
    """
    return jax.random.fold_in(key, np.uint32(2**32 - stream)) if stream else key


def draw_rounds(
    rows: Rows,
    key: jax.Array,
    rounds: jax.Array,
    shape: tuple[int, ...],
    dtype: Any,
    chunk: int = _CHUNK,
) -> jax.Array:
    """The noise of the given rounds, shape (rounds, *shape): pure, for use inside jit and vmap
    (over keys).

    `rounds` may be traced; only its length is static. All columns up to its last round are drawn in
    chunks, so rounds that are given together should lie together. A round outside the horizon gets
    NaN: nothing traced can be refused, and noise that is silently missing would be worse.
    """
    dtype = jnp.dtype(dtype)
    noise = rows.noise(key, rounds, shape, dtype, chunk)
    inside = (rounds >= 0) & (rounds < rows.horizon)
    return jnp.where(inside.reshape(-1, *(1 for _ in shape)), noise, jnp.nan)


def _fresh(key: jax.Array, column: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """xi_w."""
    return Gaussian().draw(jax.random.fold_in(key, column), shape, dtype)


_block_of_rounds = jax.jit(draw_rounds, static_argnames=("shape", "dtype", "chunk"))


class Recursion(NamedTuple):
    """One round after the other: step(rates, memory, key, round) -> (noise, memory), with so many
    vectors of memory.
    """

    step: Callable[..., tuple[jax.Array, jax.Array]]
    rates: np.ndarray
    memory: int


class NoiseStream(ABC):
    """The noise of one round after the other, for as many rounds as the factorization has.

    Made by `noise_stream`.
    """

    def __init__(
        self, factorization: Factorization, key: jax.Array, shape: tuple[int, ...], dtype: np.dtype
    ) -> None:
        self.factorization, self.key, self.shape, self.dtype = factorization, key, shape, dtype
        self.round = 0

    def next(self) -> jax.Array:
        """D[r] xi for the next round r."""
        if self.round >= self.factorization.rounds:
            raise ValueError(
                f"the factorization was made for {self.factorization.rounds} rounds and all of them"
                " have been sent: there is no noise for another one"
            )
        noise = self._noise()
        self.round += 1
        return noise

    @abstractmethod
    def _noise(self) -> jax.Array: ...

    def state(self) -> dict[str, np.ndarray]:
        """Plain arrays from which `noise_stream(..., state=...)` goes on.

        The key is not among them, only a check that it is the same.
        """
        return {"round": np.asarray(self.round), **self._identity()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        own = self._identity()
        missing = {"round", *own} - set(state)
        if missing:
            raise ValueError(
                "state must be what state() of a noise stream returned; it lacks"
                f" {', '.join(sorted(missing))}"
            )
        for name, value in own.items():
            saved = np.asarray(state[name])
            same = (
                np.allclose(saved, value, rtol=1e-9, atol=0)
                if value.dtype.kind == "f"
                else np.array_equal(saved, value)
            )
            if not same:
                raise ValueError(
                    f"cannot resume the noise of another run: its {name} is {value.tolist()}, and"
                    f" the state was saved with {saved.tolist()}"
                )
        self.round = int(state["round"])

    def _identity(self) -> dict[str, np.ndarray]:
        """What makes the noise what it is.

        The two numbers tell apart factorizations of the same name that another
        machine has found.
        """
        return {
            "factorization": np.asarray(repr(self.factorization)),
            "sensitivity and error": np.asarray(
                [self.factorization.sensitivity, self.factorization.error()]
            ),
            "shape": np.asarray(self.shape, np.int64),
            "dtype": np.asarray(str(self.dtype)),
            "key check": np.asarray(
                hashlib.sha256(np.asarray(jax.random.key_data(self.key)).tobytes()).hexdigest()[:16]
            ),
        }


class _Redrawn(NoiseStream):
    """identity, tree, toeplitz, dense: whole blocks of rounds, from nothing but the key.

    Blocks begin at multiples of their length, also on resuming.
    """

    def __init__(self, *args: Any, block: int | None) -> None:
        super().__init__(*args)
        size = math.prod(self.shape) * self.dtype.itemsize
        fits = min(self.factorization.rounds, _LONGEST_BLOCK, max(8, _BLOCK_BYTES // max(1, size)))
        # No column is shared by many rounds.
        alone = self.factorization.alone
        self.block = require.count("block", block) if block is not None else 1 if alone else fits
        self._chunk = min(_CHUNK, self.block) if alone else _CHUNK
        self._rows, self._start = self.factorization.device_rows(self.dtype), -1
        self._held: jax.Array | None = None

    def _noise(self) -> jax.Array:
        start = self.round - self.round % self.block
        held = self._held if start == self._start else None
        if held is None:
            # Release the old block first.
            self._held, rounds = None, start + jnp.arange(self.block)
            held = _block_of_rounds(
                self._rows, self.key, rounds, self.shape, self.dtype, self._chunk
            )
            self._held, self._start = held, start
        return held[self.round - start]


class _Recursive(NoiseStream):
    """blt, banded: a recursion with a fixed number of vectors of memory."""

    def __init__(self, *args: Any, recursion: Recursion) -> None:
        super().__init__(*args)
        self._step = recursion.step
        self._rates = jnp.asarray(recursion.rates, self.dtype)
        self._memory = jnp.zeros((recursion.memory, *self.shape), self.dtype)

    def _noise(self) -> jax.Array:
        noise, self._memory = self._step(self._rates, self._memory, self.key, self.round)
        return noise

    def state(self) -> dict[str, np.ndarray]:
        return {**super().state(), "memory": np.array(self._memory)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        super().restore(state)
        memory = np.asarray(state["memory"], self.dtype) if "memory" in state else np.empty(0)
        if memory.shape != self._memory.shape:
            require.fail("memory in the state", f"of shape {self._memory.shape}", memory.shape)
        self._memory = jnp.array(memory)


@partial(jax.jit, donate_argnums=1)
def blt_round(
    poles: jax.Array, memory: jax.Array, key: jax.Array, r: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Filter i turns x into y = (1 - p_i z) / (1 - q_i z) x:
    y = x + s_i, then s_i <- q_i y - p_i x.
    """
    signal, kept = _fresh(key, r, memory.shape[1:], memory.dtype), []
    for own, back, held in zip(poles[0], poles[1], memory, strict=True):
        out = signal + held
        kept.append(back * out - own * signal)
        signal = out
    return signal, jnp.stack(kept)


@partial(jax.jit, donate_argnums=1)
def banded_round(
    coefficients: jax.Array, memory: jax.Array, key: jax.Array, r: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The noise of the last bands - 1 rounds is kept in a ring:
    that of round s at place s mod (bands - 1).
    """
    fresh, size = _fresh(key, r, memory.shape[1:], memory.dtype), len(memory)
    if size == 0:
        return fresh / coefficients[0], memory
    back = 1 + (r - 1 - jnp.arange(size)) % size  # how many rounds ago each place was filled
    noise = (
        fresh - jnp.tensordot(coefficients[back], memory, axes=1, precision="highest")
    ) / coefficients[0]
    return noise, memory.at[r % size].set(noise)


def noise_stream(
    factorization: Factorization,
    key: jax.Array,
    shape: tuple[int, ...],
    dtype: Any,
    state: Mapping[str, np.ndarray] | None = None,
    block: int | None = None,
) -> NoiseStream:
    """The noise of one learner, round by round; `state` resumes where a stream of the same
    factorization, key, shape and type was.

    `block` is how many rounds of toeplitz or dense noise are worked out at once: more is faster and
    takes more memory. It never changes the noise.
    """
    if not (
        isinstance(key, jax.Array)
        and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        and key.shape == ()
    ):
        raise TypeError(f"key must be one key such as jax.random.key(0), got {key!r:.80}")
    shape = tuple(require.count("shape", size, least=0) for size in shape)
    arguments = (factorization, key, shape, jnp.dtype(dtype))
    stream: NoiseStream
    if (recursion := factorization.recursion()) is not None:
        if block is not None:
            require.fail(
                "block",
                f"left out: the {factorization.name} recursion takes one round at a time",
                block,
            )
        stream = _Recursive(*arguments, recursion=recursion)
    else:
        stream = _Redrawn(*arguments, block=block)
    if state is not None:
        stream.restore(state)
    return stream

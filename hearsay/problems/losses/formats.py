"""In which precision a model computes.

Gradients are measured, clipped and added up as they come out of it, in the parameters' own
precision (per_record.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp


class Format(NamedTuple):
    """How a model's numbers are stored and multiplied.

    Args:
      products: what JAX calls such products.
      digits: what they keep of a float32 behind its leading digit, or more.
      stored: the precision of everything inside the model (None: that of the parameters).
    """

    products: str
    digits: int
    stored: Any = None


EXACT = Format("highest", 23)
FORMATS = {
    "tf32": Format("tensorfloat32", 10),
    "float32": EXACT,
    "bfloat16": Format("bfloat16", 7, jnp.bfloat16),
}
# What JAX calls products that keep so many digits.
PRODUCTS = {form.digits: form.products for form in FORMATS.values()}

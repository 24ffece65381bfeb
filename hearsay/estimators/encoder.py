"""Rows of a table as records, as a step of a scikit-learn pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from hearsay import _validate as require
from hearsay.release.model import features_of
from hearsay.tables.schema import Schema


class TableEncoder(TransformerMixin, BaseEstimator):
    """The records that a schema makes of a table's rows.

    It learns nothing: what it does follows from the schema, which is public, and from each row
    alone. So it is safe before anything private, and needs no fit.

    Args:
      schema: of the table.

    Example:
      >>> import hearsay as hs
      >>> schema = hs.Schema(
      ...     {"age": hs.Number(0, 120), "ill": hs.Category(["no", "yes"])}, target="ill"
      ... )
      >>> hs.TableEncoder(schema).transform({"age": [60, 120]}).shape
      (2, 2)
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def fit(self, table: Any = None, y: Any = None) -> TableEncoder:
        """Nothing is learned."""
        require.instance("schema", self.schema, Schema, "a Schema")
        return self

    def transform(self, table: Any) -> np.ndarray:
        """(rows, schema.width), of what `ReleasedModel.predict` takes."""
        require.instance("schema", self.schema, Schema, "a Schema")
        return features_of(self.schema, table)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of a record's entries."""
        return np.array(self.schema.entries, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.no_validation = True
        return tags

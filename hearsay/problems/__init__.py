"""Problems: losses with their bounds, data sets, partitions, samplers."""

from hearsay.problems.datasets import Dataset, from_arrays, linear_stream, load
from hearsay.problems.domains import Ball, Box
from hearsay.problems.losses import HalfSquared, Logistic, PolynomialLogistic, Squared
from hearsay.problems.problem import PROBLEMS, Problem, estimation, logistic, ridge
from hearsay.problems.sampling import SAMPLERS, Cyclic, Fresh, History, Resample, Subset
from hearsay.problems.synthetic import synthetic

__all__ = [
    "PROBLEMS",
    "SAMPLERS",
    "Ball",
    "Box",
    "Cyclic",
    "Dataset",
    "Fresh",
    "HalfSquared",
    "History",
    "Logistic",
    "PolynomialLogistic",
    "Problem",
    "Resample",
    "Squared",
    "Subset",
    "estimation",
    "from_arrays",
    "linear_stream",
    "load",
    "logistic",
    "ridge",
    "synthetic",
]

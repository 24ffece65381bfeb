"""Problems: losses with their bounds, data sets, partitions, samplers."""

from hearsay.problems.datasets import Dataset, from_arrays, linear_stream, load
from hearsay.problems.domains import Ball, Box
from hearsay.problems.losses import Logistic, PolynomialLogistic, Squared
from hearsay.problems.problem import PROBLEMS, Problem, logistic, ridge
from hearsay.problems.sampling import SAMPLERS, Cyclic, Fresh, History, Resample

__all__ = [
    "PROBLEMS",
    "SAMPLERS",
    "Ball",
    "Box",
    "Cyclic",
    "Dataset",
    "Fresh",
    "History",
    "Logistic",
    "PolynomialLogistic",
    "Problem",
    "Resample",
    "Squared",
    "from_arrays",
    "linear_stream",
    "load",
    "logistic",
    "ridge",
]

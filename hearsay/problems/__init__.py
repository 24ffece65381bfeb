"""Problems: losses with their bounds, data sets, partitions, samplers."""

from hearsay.problems.data.datasets import Dataset, from_arrays, linear_stream, load
from hearsay.problems.data.images import IMAGES, Images, from_records, load_images
from hearsay.problems.losses.domains import Ball, Box
from hearsay.problems.losses.linear import HalfSquared, Logistic, PolynomialLogistic, Squared
from hearsay.problems.losses.models import MODELS
from hearsay.problems.losses.neural_loss import Model, Network, from_function, from_module
from hearsay.problems.neural import neural
from hearsay.problems.problem import PROBLEMS, Problem, estimation, logistic, ridge
from hearsay.problems.sampling.samplers import SAMPLERS, Cyclic, Fresh, History, Resample, Subset
from hearsay.problems.synthetic import synthetic

__all__ = [
    "IMAGES",
    "MODELS",
    "PROBLEMS",
    "SAMPLERS",
    "Ball",
    "Box",
    "Cyclic",
    "Dataset",
    "Fresh",
    "HalfSquared",
    "History",
    "Images",
    "Logistic",
    "Model",
    "Network",
    "PolynomialLogistic",
    "Problem",
    "Resample",
    "Squared",
    "Subset",
    "estimation",
    "from_arrays",
    "from_function",
    "from_module",
    "from_records",
    "linear_stream",
    "load",
    "load_images",
    "logistic",
    "neural",
    "ridge",
    "synthetic",
]

"""Problems: a Task is what is public of one, a Problem has the records too; losses with their
bounds, data sets, partitions, samplers.
"""

from collections.abc import Callable

from hearsay.problems.data.datasets import Dataset, from_arrays, linear_stream, load
from hearsay.problems.data.images import IMAGES, Images, from_records, load_images
from hearsay.problems.data.records import Records
from hearsay.problems.data.stream import Stream
from hearsay.problems.linear import logistic, logistic_task, ridge, ridge_task
from hearsay.problems.losses.domains import Ball, Box
from hearsay.problems.losses.linear import HalfSquared, Logistic, PolynomialLogistic, Squared
from hearsay.problems.losses.models import MODELS
from hearsay.problems.losses.neural_loss import Model, NeuralLoss, from_function, from_module
from hearsay.problems.losses.softmax import Softmax
from hearsay.problems.neural_networks import neural, neural_task
from hearsay.problems.parameter_estimation import estimation
from hearsay.problems.problem import Problem
from hearsay.problems.sampling.samplers import (
    SAMPLERS,
    Cyclic,
    Fresh,
    History,
    Poisson,
    Resample,
    Subset,
)
from hearsay.problems.several_classes import softmax, softmax_task
from hearsay.problems.synthetic_learners import synthetic
from hearsay.problems.tabular_data import table_facts, tabular, tabular_task
from hearsay.problems.task import Declared, Task
from hearsay.problems.torch_modules import from_torch, state_dict, torch_model

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "logistic": logistic,
    "ridge": ridge,
    "softmax": softmax,
    "estimation": estimation,
    "synthetic": synthetic,
    "neural": neural,
    "tabular": tabular,
}
# What is public of those whose data may be anybody's, from what is public of the data.
TASKS: dict[str, Callable[..., Task]] = {
    "logistic": logistic_task,
    "ridge": ridge_task,
    "softmax": softmax_task,
    "neural": neural_task,
    "tabular": tabular_task,
}

__all__ = [
    "IMAGES",
    "MODELS",
    "PROBLEMS",
    "SAMPLERS",
    "TASKS",
    "Ball",
    "Box",
    "Cyclic",
    "Dataset",
    "Declared",
    "Fresh",
    "HalfSquared",
    "History",
    "Images",
    "Logistic",
    "Model",
    "NeuralLoss",
    "Poisson",
    "PolynomialLogistic",
    "Problem",
    "Records",
    "Resample",
    "Softmax",
    "Squared",
    "Stream",
    "Subset",
    "Task",
    "estimation",
    "from_arrays",
    "from_function",
    "from_module",
    "from_records",
    "from_torch",
    "linear_stream",
    "load",
    "load_images",
    "logistic",
    "neural",
    "ridge",
    "softmax",
    "state_dict",
    "synthetic",
    "table_facts",
    "tabular",
    "tabular_task",
    "torch_model",
]

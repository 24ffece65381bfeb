"""A network of agents behind scikit-learn's conventions: fit, predict, score.

    fitting.py      from a problem to the model that may be published: rehearse, run, release
    arrays.py       arrays as tables: a schema made of public ranges and classes
    network.py      what both estimators share
    classifier.py   NetworkClassifier
    regressor.py    NetworkRegressor
    verbose.py      how far a fit is
    encoder.py      TableEncoder, a schema as a step of a pipeline
    exporting.py    released linear models as scikit-learn's own

Only these files import scikit-learn when they are imported: `import hearsay` does not.
"""

from hearsay.estimators.classifier import NetworkClassifier
from hearsay.estimators.encoder import TableEncoder
from hearsay.estimators.regressor import NetworkRegressor

__all__ = ["NetworkClassifier", "NetworkRegressor", "TableEncoder"]

"""The demonstration: five hospitals in a ring, each with a privacy budget of its own,
on the breast-cancer data.
"""

from hearsay.config import Config

CONFIG = Config(
    problem={
        "loss": "logistic",
        "data": "breast-cancer",
        "agents": 5,
        "ridge": 0.02,
        "head_start": 60,
    },
    graph={"kind": "ring"},
    algorithm={
        "name": "ldp-online",
        "mechanism": "gaussian",
        "step": "6*(k+1)^-0.77",
        "coupling": "0.5*(k+1)^-0.75",
        "noise": "1*(k+1)^0.1",
    },
    privacy={"epsilon": [2.0, 3.0, 4.0, 6.0, 8.0], "delta": 1e-5},
    run={"steps": 100, "seeds": 10},
)

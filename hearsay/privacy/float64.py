"""What floating-point arithmetic adds to a sensitivity follows from how large its numbers get."""

from __future__ import annotations

from dataclasses import dataclass

from hearsay import _validate as require
from hearsay.schedules import Schedule, nonnegative, schedule


@dataclass(frozen=True, kw_only=True)
class Magnitudes:
    """How large the numbers of one agent's update can become, as the algorithm declares it. Nothing
    has a default that could count too little.

    Args:
      step: the step size that multiplies gradients.
      coupling: the largest factor of what is heard.
      tracking: the factor of what a tracker takes in; 0: there is no tracker.
      resolution: the largest distance by which a quantizer moves a message.
      step_noise: the scale that a step's noise has on the message after it, where a release has
        delay 1; None: every message field has noise of its own.
    """

    step: Schedule
    coupling: Schedule
    tracking: Schedule
    resolution: float
    step_noise: Schedule | None = None

    def __post_init__(self) -> None:
        require.settle(
            self,
            step=nonnegative,
            coupling=schedule,
            tracking=nonnegative,
            resolution=require.nonnegative,
            step_noise=require.optional(nonnegative),
        )

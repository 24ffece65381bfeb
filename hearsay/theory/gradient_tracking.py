"""Assumptions 1-5, Theorems 1-5 and Corollary 1 of paper P2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearsay.base import Finding
from hearsay.graphs import Graph
from hearsay.problems.problem import Problem

if TYPE_CHECKING:
    from hearsay.algorithms.gradient_tracking import GradientTracking


def gradient_tracking(algorithm: GradientTracking, graph: Graph, problem: Problem) -> list[Finding]:
    return []

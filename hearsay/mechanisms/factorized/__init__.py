"""Noise that is correlated over rounds: factorizations, their streams in JAX,
and their exact form on a lattice.
"""

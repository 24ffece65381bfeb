"""The papers' conditions and rates as named checks: does each hold for this configuration, and
by how much.

A finding never stops a run (the algorithms are meaningful outside the theorems), and nothing here
is a privacy guarantee: budgets come from privacy/ alone.
"""

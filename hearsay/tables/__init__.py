"""Tables of people who are not us: what is public of their columns (schema.py), how a row becomes a
record (encoding.py).
"""

from hearsay.tables.columns import Category, Ignored, Number
from hearsay.tables.schema import Schema

__all__ = ["Category", "Ignored", "Number", "Schema"]

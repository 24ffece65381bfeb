"""Tables of people who are not us: what is public of their columns (schema.py), where rows come
from (reading.py), how a row becomes a record (encoding.py), what
its owner is told of that (counting.py), a schema to start from (drafting.py).
"""

from hearsay.tables.columns import Category, Ignored, Number
from hearsay.tables.counting import Counted
from hearsay.tables.encoding import Encoded
from hearsay.tables.reading import read_table
from hearsay.tables.schema import Schema

__all__ = ["Category", "Counted", "Encoded", "Ignored", "Number", "Schema", "read_table"]

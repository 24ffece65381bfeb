"""A page that stands alone (no script, nothing loaded): a template of templates/, filled in, with
report.css inside it; or a piece of a page with inline.css, for notebooks.

What the templates are given is plain data, tables and pictures. Everything in it becomes text: the
templates escape what they print, except `Markup`, which only this file makes (the figures, the
style sheet).
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from hearsay._files import PRIVATE, write_atomically
from hearsay._version import VERSION
from hearsay.report.numbers import quantity
from hearsay.report.plot_style import styled

_HERE = Path(__file__).parent
_NUMBER = re.compile(r"^(–|-|infinite|[-−]?\d[\d,.]*[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]*( [%×±].*)?)$")


class Cell(NamedTuple):
    """A cell of a table with a small line beneath it."""

    value: object
    note: str


class Table(NamedTuple):
    """A table whose first column names its rows."""

    caption: str
    header: Sequence[object]
    rows: Sequence[Sequence[object]]

    @property
    def numeric(self) -> list[int]:
        """The columns that hold nothing but numbers."""
        return [
            column
            for column in range(len(self.header))
            if self.rows and all(_NUMBER.match(text(row[column])) for row in self.rows)
        ]


class Picture(NamedTuple):
    """A figure as inline SVG, and what stands below it."""

    svg: Markup
    caption: str


def text(value: object) -> str:
    """Any value as a reader wants it: numbers as people write them, anything else as it is."""
    if isinstance(value, Cell):
        return text(value.value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return quantity(value)
    if value is None:
        return "–"
    return value if isinstance(value, str) else str(value)


def picture(name: str, figure: Figure, caption: str, described: str = "") -> Picture:
    """A figure for a page.

    Args:
      name: makes the ids inside the drawing unique on the page.
      figure: what is drawn.
      caption: what stands below it.
      described: what a screen reader says; the caption unless given.
    """
    buffer = io.StringIO()
    with styled():
        figure.savefig(
            buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    drawing = buffer.getvalue()
    box = re.search(r'viewBox="([^"]*)"', drawing)
    assert box is not None
    inside = drawing[drawing.index(">", drawing.index("<svg")) + 1 :]
    inside = re.sub(
        r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", inside, count=1, flags=re.DOTALL
    )
    inside = re.sub(r'\bid="', f'id="{name}-', inside)
    inside = inside.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    opening = Markup('<svg role="img" aria-label="{}" viewBox="{}">')
    # matplotlib has escaped the words in the drawing.
    drawn = opening.format(described or caption, box[1]) + Markup(inside.strip())
    return Picture(drawn, caption)


def write(path: Path, template: str, **data: Any) -> Path:
    """Write the page; it is whole or not there. Returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    private = path.name.startswith(PRIVATE)
    write_atomically(path, render(template, private=private, **data).encode())
    return path


def render(template: str, **data: Any) -> str:
    """A template of templates/, filled in."""
    return _environment().get_template(template).render(data)


@functools.cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        finalize=text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals |= {
        "css": Markup((_HERE / "report.css").read_text(encoding="utf-8")),
        "inline_css": Markup((_HERE / "inline.css").read_text(encoding="utf-8")),
        "version": VERSION,
    }
    return found

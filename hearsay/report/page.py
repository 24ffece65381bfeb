"""Markup: a page that stands alone (no script, nothing loaded), and the few elements that
it is made of.

Everything becomes text unless it is `Html`, which only this package makes.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterable, Sequence

from matplotlib.figure import Figure

from hearsay.report.numbers import quantity
from hearsay.report.style import styled
from hearsay.report.theme import CSS


class Html(str):
    """Markup that has been escaped where it had to be."""


def text(value: object) -> Html:
    """Any value as safe markup: numbers as people write them, anything else escaped."""
    if isinstance(value, Html):
        return value
    if isinstance(value, bool):
        return Html("yes" if value else "no")
    if isinstance(value, int):
        return Html(f"{value:,}")
    if isinstance(value, float):
        return Html(quantity(value))
    return Html("–" if value is None else html.escape(str(value)))


def tag(name: str, *content: object, **attributes: str) -> Html:
    """<name attributes>content</name>; an attribute called class_ or aria_label loses its
    underscore or gets a hyphen.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(v)}"' for key, v in attributes.items()
    )
    return Html(f"<{name}{given}>{join(content)}</{name}>")


def join(parts: Iterable[object]) -> Html:
    return Html("".join(text(part) for part in parts))


def section(title: str, *content: object) -> Html:
    return Html(f"<section>\n{tag('h2', title)}\n{join(content)}\n</section>\n")


def notice(kind: str, *content: object) -> Html:
    """A box that must not be missed; `kind` is "note" or "alert"."""
    return Html(f'<div class="notice {kind}" role="note">{join(content)}</div>\n')


def facts(pairs: Iterable[tuple[object, object]]) -> Html:
    """Terms and what they are."""
    return tag(
        "dl", *(join([tag("dt", term), tag("dd", meaning), Html("\n")]) for term, meaning in pairs)
    )


def table(caption: str, header: Sequence[object], rows: Iterable[Sequence[object]]) -> Html:
    """A table whose first column names its rows; columns of numbers are set flush right,
    and a long one scrolls in its box.
    """
    cells = [[text(cell) for cell in row] for row in rows]
    right = [
        all(_NUMBER.match(row[i].partition("<small>")[0]) for row in cells) and bool(cells)
        for i in range(len(header))
    ]
    classes = [' class="n"' if r else "" for r in right]
    head = "".join(
        f'<th scope="col"{c}>{text(h)}</th>' for c, h in zip(classes, header, strict=True)
    )
    body = "".join(
        f'<tr><th scope="row"{classes[0]}>{row[0]}</th>'
        + "".join(f"<td{c}>{cell}</td>" for c, cell in zip(classes[1:], row[1:], strict=True))
        + "</tr>\n"
        for row in cells
    )
    box = "table tall" if len(cells) > 40 else "table"
    return Html(
        f'<div class="{box}" role="region" tabindex="0"'
        f' aria-label="{html.escape(caption)}"><table>\n'
        f"<caption>{text(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n"
    )


def picture(name: str, figure: Figure, caption: object, described: str) -> Html:
    """A figure as inline SVG; `name` makes its inner ids unique on the page,
    `described` is what a screen reader says.
    """
    return Html(f"<figure>{_svg(name, figure, described)}{tag('figcaption', caption)}</figure>\n")


def page(title: str, *content: object) -> bytes:
    # The policy turns "nothing is loaded from elsewhere" from a habit into something that the
    # browser enforces.
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src'
        " 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text(title)}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n{join(content)}</main>\n</body>\n</html>\n"
    ).encode()


_NUMBER = re.compile(r"^(–|-|infinite|[-−]?\d[\d,.]*[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]*( [%×±].*)?)$")


def _svg(name: str, figure: Figure, described: str) -> str:
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
    return (
        f'<svg role="img" aria-label="{html.escape(described)}" viewBox="{box[1]}">{inside.strip()}'
    )

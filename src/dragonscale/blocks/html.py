"""A sheet as HTML for notebooks and pages: the same blocks, everything that comes from outside escaped.

The style is scoped to one class and follows light and dark; it needs no script and no network.
"""

import functools
import re
from html import escape
from pathlib import Path
from typing import Any

from dragonscale.blocks import sheet as blocks

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#56b4e9", "#d55e00", "#7f7f7f", "#bdbdbd")
"""Okabe and Ito's colours (jfly.uni-koeln.de/color), told apart by the colour-blind too."""
_CODE = re.compile(r"`([^`\n]+)`")


def html_of(sheet: blocks.Sheet) -> str:
    """The whole sheet as one `div`, with its style.

    >>> html_of(blocks.Sheet((blocks.Title("<b>"),))).endswith("<h3>&lt;b&gt;</h3></div>")
    True
    """
    return f'<style>\n{_style()}</style><div class="dscale">{"".join(map(_block, sheet.blocks))}</div>'


@functools.cache
def _style() -> str:
    return Path(__file__).with_name("sheet.css").read_text(encoding="utf-8")


def _text(text: Any) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(str(text))).replace("\n", "<br>")


def _block(one: blocks.Block) -> str:
    match one:
        case blocks.Title():
            return f"<h3>{_text(one.text)}</h3>" + (f'<p class="dim">{_text(one.aside)}</p>' if one.aside else "")
        case blocks.Facts():
            rows = (f'<dt>{_text(row.label)}</dt><dd class="{row.tone}">{_text(row.text)}</dd>' for row in one.rows)
            return f"<dl>{''.join(rows)}</dl>"
        case blocks.StackedBar():
            return _stack(one)
        case blocks.Grid():
            return _table(one)
        case blocks.Prose():
            return f'<p class="{one.tone}">{_text(one.text)}</p>'
        case blocks.Verbatim():
            return f"<pre>{escape(one.text)}</pre>"
        case blocks.NextStep():
            why = f"{_text(one.why)} " if one.why else ""
            return f"<p>{why}<code>{escape(one.text)}</code></p>"


def _colour(place: int) -> str:
    return PALETTE[place % len(PALETTE)]


def _stack(one: blocks.StackedBar) -> str:
    scale = max(one.total, sum(part.value for part in one.parts)) or 1.0
    spans = "".join(
        (
            f'<span style="width:{100 * part.value / scale:.2f}%;background:{_colour(place)}" '
            f'title="{escape(_told(part))}"></span>'
        )
        for place, part in enumerate(one.parts)
    )
    head = f'<p>{_text(one.label)} <span class="{one.tone}">{_text(one.text)}</span></p>'
    rows = "".join(
        f'<li><span class="swatch" style="background:{_colour(place)}"></span> {_text(_told(part))}</li>'
        for place, part in enumerate(one.parts)
    )
    return f'{head}<div class="bar">{spans}</div>' + (f"<ul>{rows}</ul>" if one.legend != "none" else "")


def _told(part: blocks.BarPart) -> str:
    return f"{part.name} {part.text}" + (f" ({part.note})" if part.note else "")


def _table(one: blocks.Grid) -> str:
    title = f"<p><b>{_text(one.title)}</b></p>" if one.title else ""
    foot = f'<p class="dim">{_text(one.foot)}</p>' if one.foot else ""
    head = "".join(f'<th class="{"right" * column.right}">{_text(column.title)}</th>' for column in one.columns)
    body = "".join(
        f"<tr>{''.join(_cell(value, column) for value, column in zip(row, one.columns, strict=True))}</tr>"
        for row in one.rows
    )
    return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"


def _cell(value: Any, column: blocks.Column) -> str:
    if column.bar:
        share = 100 * max(0.0, min(1.0, value or 0.0))
        return (
            '<td><div class="bar" style="width:10em"><span '
            f'style="width:{share:.1f}%;background:{_colour(0)}"></span></div></td>'
        )
    return f'<td class="{("right " * column.right + column.tone).strip()}">{_text(blocks.cell_text(value))}</td>'

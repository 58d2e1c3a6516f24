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


def _block(block: blocks.Block) -> str:
    match block:
        case blocks.Title():
            verdict = f'<p class="{block.tone}">{_text(block.verdict)}</p>' if block.verdict else ""
            aside = f'<p class="dim">{_text(block.aside)}</p>' if block.aside else ""
            return f"{verdict}<h3>{_text(block.text)}</h3>{aside}"
        case blocks.Facts():
            rows = (f'<dt>{_text(row.label)}</dt><dd class="{row.tone}">{_text(row.text)}</dd>' for row in block.rows)
            return f"<dl>{''.join(rows)}</dl>"
        case blocks.StackedBar():
            return _stack(block)
        case blocks.Grid():
            return _table(block)
        case blocks.Prose():
            return f'<p class="{block.tone}">{_text(block.text)}</p>'
        case blocks.Verbatim():
            return f"<pre>{escape(block.text)}</pre>"
        case blocks.NextStep():
            why = f"{_text(block.why)} " if block.why else ""
            return f"<p>{why}<code>{escape(block.text)}</code></p>"


def _colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def _stack(bar: blocks.StackedBar) -> str:
    scale = max(bar.total, sum(part.value for part in bar.parts)) or 1.0
    spans = "".join(
        (
            f'<span style="width:{100 * part.value / scale:.2f}%;background:{_colour(index)}" '
            f'title="{escape(_told(part))}"></span>'
        )
        for index, part in enumerate(bar.parts)
    )
    head = f'<p>{_text(bar.label)} <span class="{bar.tone}">{_text(bar.text)}</span></p>'
    rows = "".join(
        f'<li><span class="swatch" style="background:{_colour(index)}"></span> {_text(_told(part))}</li>'
        for index, part in enumerate(bar.parts)
    )
    return f'{head}<div class="bar">{spans}</div>' + (f"<ul>{rows}</ul>" if bar.legend != "none" else "")


def _told(part: blocks.BarPart) -> str:
    return f"{part.name} {part.text}" + (f" ({part.note})" if part.note else "")


def _table(grid: blocks.Grid) -> str:
    title = f"<p><b>{_text(grid.title)}</b></p>" if grid.title else ""
    foot = f'<p class="dim">{_text(grid.foot)}</p>' if grid.foot else ""
    head = "".join(f'<th class="{"right" * column.right}">{_text(column.title)}</th>' for column in grid.columns)
    body = "".join(
        f"<tr>{''.join(_cell(value, column) for value, column in zip(row, grid.columns, strict=True))}</tr>"
        for row in grid.rows
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

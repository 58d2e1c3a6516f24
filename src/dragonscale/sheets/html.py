"""A sheet as HTML for notebooks and pages: the same blocks, everything that comes from outside escaped.

The style is scoped to one class and follows light and dark; it needs no script and no network.
"""

import re
from html import escape
from typing import Any

from dragonscale.sheets.sheet import (
    BarPart,
    Block,
    Column,
    Facts,
    Grid,
    NextStep,
    Prose,
    Sheet,
    StackedBar,
    Title,
    Verbatim,
)

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#56b4e9", "#d55e00", "#7f7f7f", "#bdbdbd")
"""Okabe and Ito's colours (jfly.uni-koeln.de/color), told apart by the colour-blind too."""
STYLE = """
.dscale{font:14px/1.45 system-ui,sans-serif;max-width:60rem;color:inherit}
.dscale h3{margin:.2em 0;font-size:1.15em}.dscale p{margin:.4em 0}.dscale .dim{opacity:.65}
.dscale .good{color:#1a7f37}.dscale .warn{color:#9a6700}.dscale .bad{color:#cf222e}.dscale .key{font-weight:600}
.dscale dl{display:grid;grid-template-columns:max-content 1fr;gap:.15em 1em;margin:.5em 0}
.dscale dt{opacity:.65}.dscale dd{margin:0}
.dscale table{border-collapse:collapse;margin:.5em 0;font-variant-numeric:tabular-nums}
.dscale th,.dscale td{padding:.15em .7em .15em 0;text-align:left;vertical-align:top}
.dscale th{border-bottom:1px solid currentColor;font-weight:600}.dscale .right{text-align:right}
.dscale .bar{display:flex;height:1.1em;width:100%;background:rgba(127,127,127,.22);border-radius:3px;overflow:hidden}
.dscale .bar>span{display:block;height:100%}
.dscale .swatch{display:inline-block;width:.8em;height:.8em;border-radius:2px}
.dscale pre{margin:.5em 0;white-space:pre-wrap}.dscale ul{list-style:none;padding:0;margin:.3em 0;columns:2}
"""
_CODE = re.compile(r"`([^`\n]+)`")


def html_of(sheet: Sheet) -> str:
    """The whole sheet as one `div`, with its style.

    >>> html_of(Sheet((Title("<b>"),))).endswith("<h3>&lt;b&gt;</h3></div>")
    True
    """
    return f'<style>{STYLE}</style><div class="dscale">{"".join(map(_block, sheet.blocks))}</div>'


def _text(text: Any) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(str(text))).replace("\n", "<br>")


def _block(one: Block) -> str:
    match one:
        case Title():
            return f"<h3>{_text(one.text)}</h3>" + (f'<p class="dim">{_text(one.aside)}</p>' if one.aside else "")
        case Facts():
            rows = (f'<dt>{_text(row.label)}</dt><dd class="{row.tone}">{_text(row.text)}</dd>' for row in one.rows)
            return f"<dl>{''.join(rows)}</dl>"
        case StackedBar():
            return _stack(one)
        case Grid():
            return _table(one)
        case Prose():
            return f'<p class="{one.tone}">{_text(one.text)}</p>'
        case Verbatim():
            return f"<pre>{escape(one.text)}</pre>"
        case NextStep():
            why = f"{_text(one.why)} " if one.why else ""
            return f"<p>{why}<code>{escape(one.text)}</code></p>"


def _colour(place: int) -> str:
    return PALETTE[place % len(PALETTE)]


def _stack(one: StackedBar) -> str:
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


def _told(part: BarPart) -> str:
    return f"{part.name} {part.text}" + (f" ({part.note})" if part.note else "")


def _table(one: Grid) -> str:
    title = f"<p><b>{_text(one.title)}</b></p>" if one.title else ""
    foot = f'<p class="dim">{_text(one.foot)}</p>' if one.foot else ""
    head = "".join(f'<th class="{"right" * column.right}">{_text(column.title)}</th>' for column in one.columns)
    body = "".join(
        f"<tr>{''.join(_cell(value, column) for value, column in zip(row, one.columns, strict=True))}</tr>"
        for row in one.rows
    )
    return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"


def _cell(value: Any, column: Column) -> str:
    if column.bar:
        share = 100 * max(0.0, min(1.0, value or 0.0))
        return (
            '<td><div class="bar" style="width:10em"><span '
            f'style="width:{share:.1f}%;background:{_colour(0)}"></span></div></td>'
        )
    shown = "–" if value is None else f"{value:,}" if isinstance(value, int) else value
    return f'<td class="{("right " * column.right + column.tone).strip()}">{_text(shown)}</td>'

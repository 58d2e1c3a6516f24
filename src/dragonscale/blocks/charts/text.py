"""How wide text is, before anything is drawn: enough to place labels so that none covers another.

Widths are the advance widths of Arial, which Helvetica and Liberation Sans share. A picture says of each of its texts
how wide it is (`fitted`), so that another font, which may be a fifth wider, covers nothing either.
"""

import re
import tomllib
from html import unescape
from pathlib import Path

_WIDTHS = tomllib.loads(Path(__file__).with_name("widths.toml").read_text(encoding="utf-8"))
_WIDTH = {character: int(width) for width, characters in _WIDTHS.items() for character in characters}
"""Thousandths of the font's size for each character."""


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Pixels that a line of text takes.

    >>> 70 < text_width("mlp matmuls", 14) < 90
    True
    """
    return sum(_WIDTH.get(c, 600) for c in text) / 1000 * size * (1.06 if bold else 1.0)


_TEXT = re.compile(r'(<text [^>]*?font-size="([\d.]+)px"[^>]*)>([^<]+)</text>')


def fitted(svg: str) -> str:
    """An SVG whose texts are as wide as they are in Arial, whatever font draws them.

    >>> fitted('<text font-size="10px" fill="red">ab</text>')
    '<text font-size="10px" fill="red" textLength="11.1" lengthAdjust="spacingAndGlyphs">ab</text>'
    """

    def fixed(match: re.Match[str]) -> str:
        start, size, shown = match.groups()
        text = unescape(shown)
        if not all(character in _WIDTH for character in text):
            return match[0]
        wide = text_width(text, float(size), 'font-weight="bold"' in start)
        return f'{start} textLength="{wide:.1f}" lengthAdjust="spacingAndGlyphs">{shown}</text>'

    return _TEXT.sub(fixed, svg)


def wrapped(text: str, size: float, width: float) -> list[str]:
    """A sentence in lines no wider than so many pixels; a longer word keeps a line of its own.

    >>> wrapped("bound by compute, 94% of the step", 14, 140)
    ['bound by compute,', '94% of the step']
    """
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def distinct(names: list[str], max_length: int = 48) -> list[str]:
    """Names shortened in the middle where they are long, and never to the same text.

    >>> distinct(["a" * 60 + "1", "a" * 60 + "2"], max_length=20)
    ['aaaaaaaaaaa…aaaaaaa1', 'aaaaaaaaaaa…aaaaaaa2']
    >>> distinct(["x", "x"])
    ['x', 'x (2)']
    """
    head = max_length * 3 // 5 - 1
    shortened: list[str] = []
    for name in names:
        short = name if len(name) <= max_length else f"{name[:head]}…{name[head + 1 - max_length :]}"
        number, shown = 1, short
        while shown in shortened:
            number += 1
            shown = f"{short} ({number})"
        shortened.append(shown)
    return shortened

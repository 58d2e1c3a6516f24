"""Colour in the terminal: by meaning, and only where it is wanted.

`auto` colours a terminal and nothing else; `NO_COLOR` and a dumb terminal turn it off, `FORCE_COLOR` on
(no-color.org, force-color.org). Parts of a bar are coloured in the order of
Okabe and Ito's palette, as near as 256 colours come; charts colour by meaning (`charts/theme.py`).
"""

import os
import re
import sys
from typing import Any

CHOICES = ("auto", "always", "never")
_RESET = "\x1b[0m"
_TONES = {
    "title": "1",
    "label": "2",
    "head": "2",
    "key": "1",
    "good": "32",
    "warn": "33",
    "bad": "31",
    "dim": "2",
    "code": "36",
}
PALETTE = (33, 208, 36, 170, 178, 74, 166, 102, 245)
"""Blue, orange, green, pink, yellow, sky, vermilion, greys: told apart by the colour-blind too."""
_CODE = re.compile(r"`([^`\n]+)`")
FILLS = "█▓▒░▚▞▤▥◆"
"""Without colour the parts of a bar are told apart by their fill."""


def wants_colour(choice: str, stream: Any = None) -> bool:
    """Whether to colour what goes to a stream.

    >>> wants_colour("always"), wants_colour("never")
    (True, False)
    """
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "") not in ("", "0"):
        return True
    out = stream or sys.stdout
    return out.isatty() and os.environ.get("TERM") != "dumb"


def painted(text: str, tone: str, colour: bool) -> str:
    """A text in its tone, and what stands in backticks in the colour of commands."""
    if not colour or not text:
        return text
    start = f"\x1b[{_TONES[tone]}m" if tone else ""
    text = _CODE.sub(lambda match: f"\x1b[{_TONES['code']}m{match[1]}{_RESET}{start}", text)
    return f"{start}{text}{_RESET}" if start else text


def block(index: int, many: int, colour: bool) -> str:
    """So many cells of the part at this place of a bar."""
    if not colour:
        return FILLS[index % len(FILLS)] * many
    return f"\x1b[38;5;{PALETTE[index % len(PALETTE)]}m{'█' * many}{_RESET}" if many else ""


def linked(text: str, address: str, colour: bool) -> str:
    """A text that leads to an address, in terminals that follow links."""
    return f"\x1b]8;;{address}\x1b\\{text}\x1b]8;;\x1b\\" if colour else text

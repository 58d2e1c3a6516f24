"""Names of models: what they may be made of, and which known one a misspelt one is near.

A name ends up in tables, files and pages, so it holds no control characters, quotes or angle
brackets. In a user's file such a name is refused; one taken from a path has them replaced.
"""

import re

from dragonscale.errors import InputError, shorten

LONGEST = 200
_ODD = frozenset("\"'`<>\\")


def is_odd(character: str) -> bool:
    """Whether a character has no place in a name."""
    return character in _ODD or not character.isprintable()


def safe_name(name: str) -> str:
    """A name with odd characters replaced.

    >>> safe_name("o'brien/mine")
    'o_brien/mine'
    """
    return "".join("_" if is_odd(character) else character for character in name[:LONGEST]).strip() or "model"


def checked_name(name: object, where: str) -> str:
    """A name as a user wrote it in a file, refused where it would break what it is written into."""
    if not isinstance(name, str):
        raise InputError(f"{shorten(where)} has a name of {shorten(name)}, which is not text.")
    if not name.strip() or len(name) > LONGEST or any(map(is_odd, name)):
        raise InputError(
            f"{shorten(where)} has a name of {shorten(name)}; a name has at most {LONGEST} letters, digits and signs, "
            "but no quotes, angle brackets, backslashes or control characters."
        )
    return name


_WORDS = "instruct|chat|base|hf|it|pt|bf16|2507|preview"
FORMATS = r"fp8|nvfp4|mxfp4|fp4|awq|gptq|int4|int8|w4a16|w8a8|quantized\.w4a16|quantized\.w8a8|dynamic|block"
"""What the name of a quantised checkpoint ends with."""

_BEFORE_VERSION = re.compile(r"-(?:instruct|chat|base|it|hf)(?=-v\d)")


def plain(name: str, formats: str = FORMATS) -> str:
    """A name without what does not matter, the format of a checkpoint too; a point between digits does.

    >>> plain("meta-llama/Meta-Llama-3.1-405B-Instruct-FP8"), plain("llama3.1-405b")
    ('llama3.1405b', 'llama3.1405b')
    """
    name = name.strip().rsplit("/", 1)[-1].lower().replace("_", "-").removeprefix("meta-")
    return re.sub(
        r"[^a-z0-9.]", "", re.sub(rf"(?:-(?:{_WORDS}|{formats or '-'}))+$", "", _BEFORE_VERSION.sub("", name))
    )

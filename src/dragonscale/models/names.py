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


_WORDS = "instruct|chat|base|hf|it|pt|bf16|fp16|f16|2507|preview"
GGUF_TYPES = r"(?:ud-)?[it]?q\d(?:-(?:[01k]|xxs|xs|s|m|l|xl|nl))*"
"""A format of GGUF files in a name whose underscores are hyphens: `q4-k-m`, `iq2-xxs`, `ud-q4-k-xl`."""
FORMATS = (
    "fp8|nvfp4|mxfp4|fp4|awq|gptq|int4|int8|w4a16|w8a8|quantized\\.w4a16|quantized\\.w8a8|dynamic|block"
    rf"|gguf|ggml|i1|imat|mlx|exl2|exl3|h\d|[\d.]+bpw|bnb|unsloth|qat|\d-?bits?|{GGUF_TYPES}"
)
"""What the name of a quantised checkpoint ends with."""

_BEFORE_VERSION = re.compile(r"-(?:instruct|chat|base|it|hf)(?=-v\d)")


def spelled(name: str, formats: str = FORMATS) -> str:
    """The last part of a name in small letters with hyphens, without the endings that do not matter.

    >>> spelled("TheBloke/Llama-2-13B-chat-GGUF"), spelled("qwen3:30b-a3b-q4_K_M")
    ('llama-2-13b', 'qwen3-30b-a3b')
    """
    name = re.sub("[_: ]", "-", name.strip().rsplit("/", 1)[-1].lower()).removeprefix("meta-")
    return re.sub(rf"(?:[-.](?:{_WORDS}|{formats or '-'}))+$", "", _BEFORE_VERSION.sub("", name))


def plain(name: str, formats: str = FORMATS) -> str:
    """A name without what does not matter, the format of a checkpoint too; a point between digits does.

    >>> plain("meta-llama/Meta-Llama-3.1-405B-Instruct-FP8"), plain("llama3.1-405b")
    ('llama3.1405b', 'llama3.1405b')
    """
    return re.sub(r"[^a-z0-9.]", "", spelled(name, formats))

"""YAML as people write it by hand: keys in their order, lists of numbers on a line. JSON's scalars are YAML's.

>>> print(
...     yaml_text({"kv_cache_config": {"dtype": "fp8", "enable_block_reuse": True}, "sizes": [1, 2], "off": None}),
...     end="",
... )
kv_cache_config:
  dtype: fp8
  enable_block_reuse: true
sizes: [1, 2]
"off": null
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"(?:[A-Za-z_/]|\.(?=[./]|$))[\w./@+-]*(?::[\w./@+-]+)*")  # .5 and .inf are numbers
_BREAKING = "\x00-\x09\x0b-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff"
"""Signs that a reader of YAML refuses, or takes for the end of a line."""
_AS_IT_STANDS = re.compile(rf"(?![ \n])[^{_BREAKING}]*(?<!\n)\n?")
"""Lines that a block keeps: the first shows the indentation, and there is no empty line at the end."""
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "none"})


def yaml_text(table: Mapping[str, Any], indent: int = 0) -> str:
    """A table as a YAML document."""
    lines: list[str] = []
    for key, value in table.items():
        lines += _entry(f"{' ' * indent}{yaml_scalar(key)}:", value, indent)
    return "\n".join(lines) + "\n"


def _entry(lead: str, value: Any, indent: int) -> list[str]:
    if isinstance(value, Mapping):
        return [lead, yaml_text(value, indent + 2).rstrip("\n")] if value else [f"{lead} {{}}"]
    if isinstance(value, Sequence) and not isinstance(value, str):
        flat = all(not isinstance(one, Mapping | list | tuple) for one in value)
        if flat and _short(value):
            return [f"{lead} [{', '.join(map(yaml_scalar, value))}]"]
        return [lead, *(_item(one, indent) for one in value)]
    return [f"{lead} {_block(value, indent) or yaml_scalar(value)}"]


def _block(value: Any, indent: int) -> str:
    """Text of several lines as it stands; nothing where a reader of YAML would make another text of that."""
    if not isinstance(value, str) or "\n" not in value or not _AS_IT_STANDS.fullmatch(value):
        return ""
    mark, text = ("|", value[:-1]) if value.endswith("\n") else ("|-", value)
    return "\n".join([mark, *(" " * (indent + 2) + line if line else "" for line in text.split("\n"))])


def _short(value: Sequence[Any]) -> bool:
    several = any(isinstance(one, str) and "\n" in one for one in value)
    return sum(len(str(one)) + 2 for one in value) < 80 and not several


def _item(value: Any, indent: int) -> str:
    pad = " " * indent
    if isinstance(value, Mapping):
        inner = yaml_text(value, indent + 2).rstrip("\n")
        return f"{pad}- {inner[indent + 2 :]}"
    return f"{pad}- {_block(value, indent) or yaml_scalar(value)}"


def _in_quotes(text: str) -> str:
    """Text in double quotes, whose escapes JSON and YAML share.

    >>> print(_in_quotes('a "b"\u2028é'))
    "a \\"b\\"\\u2028é"
    """
    return re.sub(f"[{_BREAKING}]", lambda sign: f"\\u{ord(sign[0]):04x}", json.dumps(text, ensure_ascii=False))


def yaml_scalar(value: Any) -> str:
    """One value; text is quoted where YAML would read it as something else."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS and not value.endswith(":")
        return value if plain else _in_quotes(value)
    if isinstance(value, float):
        text = f"{value:.10g}"
        # YAML 1.1 reads 1e-05 as text: the mantissa needs a point.
        return re.sub(r"^(-?\d+)e", r"\1.0e", text)
    return json.dumps(value)

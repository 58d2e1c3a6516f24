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

_PLAIN = re.compile(r"[A-Za-z_./][\w./@+-]*(?::[\w./@+-]+)*")
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
        if all(not isinstance(one, Mapping | list | tuple) for one in value):
            return (
                [f"{lead} [{', '.join(map(yaml_scalar, value))}]"]
                if _short(value)
                else [lead, *(_item(one, indent) for one in value)]
            )
        return [lead, *(_item(one, indent) for one in value)]
    if isinstance(value, str) and "\n" in value:
        inner = "\n".join(" " * (indent + 2) + line if line else "" for line in value.rstrip("\n").split("\n"))
        return [f"{lead} |", inner]
    return [f"{lead} {yaml_scalar(value)}"]


def _short(value: Sequence[Any]) -> bool:
    return sum(len(str(one)) + 2 for one in value) < 80 and not any(
        isinstance(one, str) and "\n" in one for one in value
    )


def _item(value: Any, indent: int) -> str:
    pad = " " * indent
    if isinstance(value, Mapping):
        inner = yaml_text(value, indent + 2).rstrip("\n")
        return f"{pad}- {inner[indent + 2 :]}"
    if isinstance(value, str) and "\n" in value:
        return "\n".join(
            [f"{pad}- |", *(" " * (indent + 2) + line if line else "" for line in value.rstrip("\n").split("\n"))]
        )
    return f"{pad}- {yaml_scalar(value)}"


def yaml_scalar(value: Any) -> str:
    """One value; text is quoted where YAML would read it as something else."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS and not value.endswith(":")
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        text = f"{value:.10g}"
        # YAML 1.1 reads 1e-05 as text: the mantissa needs a point.
        return re.sub(r"^(-?\d+)e", r"\1.0e", text)
    return json.dumps(value)

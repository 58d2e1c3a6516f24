"""A kernel profile as the text of its TOML file: constants in the order of their record, times with units."""

from dataclasses import fields
from typing import Any

from dragonscale.evidence.calibrate.fitting import BOUNDS
from dragonscale.physics.kernels.profile_file import read_profile, tables_of

_TIMES = {"launch", "join", "throttle", "edge", "fill", "block", "group", "key", "expert"}
_KINDS = ("stream", "matmul", "attention", "decode", "grouped")


def put_constants(raw: dict[str, Any], table: Any, kind: str, rest: dict[str, Any]) -> None:
    """Fitted constants and what they rest on into a raw table, in the order of the record; others stay."""
    for constant in (*BOUNDS[kind], *(("backward",) if kind == "attention" else ())):
        if (value := getattr(table, constant)) and not getattr(table, "expanded", False):
            raw[constant] = seconds_text(value) if is_time(constant) else value
    order = [field.name for field in fields(table) if field.name in raw]
    values = {key: raw[key] for key in order} | {"rests_on": {**raw.get("rests_on", {}), **rest}}
    raw.clear()
    raw.update(values)


def profile_text(source: dict[str, Any], name: str) -> str:
    """The whole file; what is not a profile is refused."""
    lines = [f"{key} = {text_of(value)}" for key, value in source.items() if key not in ("sources", *_KINDS)]
    for key, value in source["sources"].items():
        lines += ["", f"[sources.{key}]", *(f"{part} = {text_of(item)}" for part, item in value.items())]
    for where, raw in tables_of(read_profile(source, name)).items():
        lines += ["", f"[{where}]", *(f"{key} = {text_of(value)}" for key, value in raw.items())]
    return "\n".join(lines) + "\n"


def text_of(value: Any) -> str:
    """A value as TOML.

    >>> text_of({"rows": [1, 2], "note": 'the "best"', "part": 0.123456})
    '{ rows = [1, 2], note = "the \\\\"best\\\\"", part = 0.1235 }'
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {text_of(item)}" for key, item in value.items()) + " }"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def seconds_text(value: float) -> str:
    """Seconds as text with a unit, to four digits.

    >>> seconds_text(3.0912e-6), seconds_text(0.5e-9)
    ('3.091us', '0.5ns')
    """
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{value / scale:.4g}{unit}"
    return f"{value / 1e-9:.4g}ns"


def is_time(name: str) -> bool:
    """Whether a constant is in seconds."""
    return name in _TIMES or name.endswith(("_row", "_launch")) or name.startswith("dispatch")

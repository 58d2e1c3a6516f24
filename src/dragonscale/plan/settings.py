"""Settings of a stack or an engine: written `group.name=value`, merged group by group, and held to what a number can
be.

They come from four places: the tables that ship, files of a user's own, what follows an engine's name
(`vllm,memory.share=0.85`), and the lists of what differs on TPUs. All are read and checked here, so that a wrong one is
told in one sentence before anything is computed.
"""

import math
import tomllib
from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from dragonscale.errors import InputError, shorten

Settable = TypeVar("Settable", bound=msgspec.Struct)

MOST, MOST_BYTES = 1e9, 1e15
"""No constant reaches these: seconds, ratios and counts; bytes."""
_FRACTIONS = {
    "kernels.quantise",
    "recompute.selective_matmuls",
    "memory.fragmentation",
    "memory.share",
    "experts.hidden",
    "experts.drift",
    "host.straggle",
}
"""Parts of a whole; so is all of `overlap`."""
_DIVISORS = {
    "kernels.throttle",
    "memory.loss_chunks",
    "memory.page",
    "memory.slack",
    "host.stream_interval",
    "host.graph_sizes",
    "kernels.shared_heads",
    "program.padded_rows",
    "scheduling.max_tokens",
    "scheduling.max_sequences",
    "scheduling.poll",
}
"""What something is divided by, or counted in."""


def read_setting(text: str, example: str = "memory.share=0.85") -> tuple[str, str, Any]:
    """A group, a name in it, and a value as TOML has it (what is not TOML is a word).

    >>> read_setting("kernels.flash=false"), read_setting("scheduling.scheduler=static")
    (('kernels', 'flash', False), ('scheduling', 'scheduler', 'static'))
    """
    path, equals, value = (part.strip() for part in text.partition("="))
    group, _, name = path.partition(".")
    if not (equals and group and name and value):
        raise InputError(f"A setting is {shorten(text)}; write it as {example!r}.")
    try:
        return group, name, tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return group, name, value


def read_settings(texts: Iterable[str], example: str = "memory.share=0.85") -> dict[str, dict[str, Any]]:
    """Settings by group.

    >>> read_settings(["kernels.joined=false", "kernels.gap_s=0.0"])
    {'kernels': {'joined': False, 'gap_s': 0.0}}
    """
    groups: dict[str, dict[str, Any]] = {}
    for text in texts:
        group, name, value = read_setting(text, example)
        groups.setdefault(group, {})[name] = value
    return groups


def merge_groups(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over others, group by group.

    >>> merge_groups({"why": "old", "host": {"step_s": 1, "token_s": 2}}, {"why": "new", "host": {"step_s": 3}})
    {'why': 'new', 'host': {'step_s': 3, 'token_s': 2}}
    """
    found = dict(base)
    for key, value in changes.items():
        group = isinstance(found.get(key), Mapping) and isinstance(value, Mapping)
        found[key] = merge_groups(found[key], value) if group else value
    return found


def with_settings(record: Settable, groups: Mapping[str, Any], where: str) -> Settable:
    """A stack or an engine with some settings changed; `where` begins the sentence about one that cannot be."""
    return made(merge_groups(msgspec.to_builtins(record), groups), type(record), where, groups)


def made(table: Mapping[str, Any], record: type[Settable], where: str, new: Container[str] | None = None) -> Settable:
    """A stack or an engine from its whole table, every number of it checked, or those of `new` groups where the others
    have been."""
    try:
        found = msgspec.convert(table, record)
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(f"{where}: {shorten(str(error), 200)}.") from None
    check_numbers(found, where, new)
    return found


def check_numbers(record: msgspec.Struct, where: str, only: Container[str] | None = None) -> None:
    """Every number of a record's groups (or of some) is one that a program can have."""
    for group in record.__struct_fields__:
        values = getattr(record, group)
        if not isinstance(values, msgspec.Struct) or (only is not None and group not in only):
            continue
        for name in values.__struct_fields__:
            path, value = f"{group}.{name}", getattr(values, name)
            above = path in _DIVISORS
            most = 1.0 if group == "overlap" or path in _FRACTIONS else MOST_BYTES if "bytes" in name else MOST
            if not _possible(value, above, most):
                least = "more than 0" if above else "at least 0"
                raise InputError(f"{where}: {path} is {str(value)[:60]}; it is {least} and at most {most:g}.")


def _possible(value: Any, above: bool, most: float) -> bool:
    """Whether a number, or each of several, is within its limits; what is no number is told by its type."""
    if isinstance(value, list | tuple):
        return all(_possible(one, above, most) for one in value)
    if isinstance(value, msgspec.Struct):
        return all(_possible(getattr(value, name), above, most) for name in value.__struct_fields__)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    return math.isfinite(value) and (value > 0 if above else value >= 0) and value <= most

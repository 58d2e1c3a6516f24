"""Settings of a stack or an engine: written `group.name=value`, merged group by group, and checked against limits.

They come from four places: the built-in tables, a user's files, what follows an engine's name
(`vllm,memory.share=0.85`), and the lists of what differs on TPUs. All are read and checked here, so that a wrong one is
reported in one sentence before anything is computed.

Constants of a stack or an engine may have been fitted on whole steps (`MeasuredOn`): on which chip, how, and with what
errors on steps that were left out. `dscale calibrate --whole-steps` writes them to a user's file, with a table
`[stack]` for training and `[engine]` for serving; the built-in ones are in `stacks.toml` and `engines.toml`.
"""

import functools
import math
import tomllib
from collections.abc import Container, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.tables import read_table

Settable = TypeVar("Settable", bound=msgspec.Struct)

# No constant reaches these: seconds, ratios and counts; bytes; steps that were measured.
MAX_CONSTANT = 1e9
MAX_BYTES = 1e15
MAX_STEPS = 1_000_000
# Fractions of a whole; so is all of `overlap`.
_FRACTIONS = {"kernels.quantise", "recompute.selective_matmuls", "memory.fragmentation", "memory.share"}
_FRACTIONS |= {"experts.hidden", "experts.drift", "host.straggle", "host.layer_straggle"}
# What something is divided by, or counted in.
_DIVISORS = {"kernels.throttle", "kernels.shared_heads", "memory.loss_chunks", "memory.page", "memory.slack"}
_DIVISORS |= {"host.stream_interval", "host.graph_sizes", "program.padded_rows"}
_DIVISORS |= {"scheduling.max_tokens", "scheduling.max_sequences", "scheduling.poll"}


def read_setting(text: str, example: str = "memory.share=0.85") -> tuple[str, str, Any]:
    """The group, the name and the value of a setting; a value that is not TOML is text.

    >>> read_setting("kernels.flash=false"), read_setting("scheduling.scheduler=static")
    (('kernels', 'flash', False), ('scheduling', 'scheduler', 'static'))
    """
    path, equals, value = map(str.strip, text.partition("="))
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
    """Settings with `changes` put over them, group by group.

    >>> merge_groups({"why": "old", "host": {"step_s": 1, "token_s": 2}}, {"why": "new", "host": {"step_s": 3}})
    {'why': 'new', 'host': {'step_s': 3, 'token_s': 2}}
    """
    merged = dict(base)
    for key, value in changes.items():
        both_groups = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = merge_groups(merged[key], value) if both_groups else value  # a list is replaced whole
    return merged


def with_settings(record: Settable, groups: Mapping[str, Any], where: str) -> Settable:
    """A stack or an engine with some settings changed; `where` begins the error about one that is impossible."""
    return checked_record(merge_groups(msgspec.to_builtins(record), groups), type(record), where, groups)


def checked_record(
    table: Mapping[str, Any], record: type[Settable], where: str, new: Container[str] | None = None
) -> Settable:
    """A stack or an engine from its whole table; all its numbers are checked, or those of the `new` groups only."""
    try:
        settings = msgspec.convert(table, record)
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(f"{where}: {shorten(str(error), 200)}.") from None
    check_numbers(settings, where, new)
    return settings


def check_numbers(record: msgspec.Struct, where: str, only: Container[str] | None = None) -> None:
    """Refuse numbers of a record's groups (or of some) that no program can have."""
    for group in record.__struct_fields__:
        values = getattr(record, group)
        if not isinstance(values, msgspec.Struct) or (only is not None and group not in only):
            continue
        for name in values.__struct_fields__:
            path, value = f"{group}.{name}", getattr(values, name)
            is_divisor = path in _DIVISORS
            limit = MAX_BYTES if "bytes" in name else MAX_CONSTANT
            if group == "overlap" or path in _FRACTIONS:
                limit = 1.0
            if not _is_possible(value, is_divisor, limit):
                least = "more than 0" if is_divisor else "at least 0"
                raise InputError(f"{where}: {path} is {str(value)[:60]}; it is {least} and at most {limit:g}.")


def _is_possible(value: Any, must_be_positive: bool, limit: float) -> bool:
    """Whether a number, or each of several, is within its limits; what is no number is refused by its type."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.astuple(value)
    if isinstance(value, list | tuple):
        return all(_is_possible(entry, must_be_positive, limit) for entry in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    if must_be_positive and value == 0:
        return False
    return 0 <= value <= limit  # false of nan too


@functools.cache
def shipped_table(package: str, name: str) -> dict[str, Any]:
    """A TOML file of one of our packages; callers must not change the cached table."""
    return tomllib.loads((resources.files(f"dragonscale.{package}") / name).read_text(encoding="utf-8"))


def canonical_name(name: str, kind: str, known: Container[str]) -> str:
    """The name of a stack or an engine (`kind`), given an alias of it or another spelling.

    >>> canonical_name("llama_cpp", "engines", ["llama.cpp"]), canonical_name("vLLM", "engines", ["vllm"])
    ('llama.cpp', 'vllm')
    >>> canonical_name("megatron", "stacks", ["megatron", "megatron-lm"])
    'megatron-lm'
    """
    text = name.strip().lower()
    canonical = shipped_table("plan", "aliases.toml")[kind].get(text.replace("_", "-"), text)
    return canonical if canonical in known else text


def shipped_records(package: str, name: str, record: type[Settable]) -> dict[str, Settable]:
    """The built-in stacks or engines by name; each starts from its `base`, at any depth."""
    tables = shipped_table(package, name)

    def resolved(name: str, derived: tuple[str, ...] = ()) -> dict[str, Any]:
        if name in derived or name not in tables:
            raise InputError(f"{name!r}, which {derived[-1]!r} starts from, is not there, or starts from itself.")
        table = tables[name]
        if not table.get("base"):
            return table
        return merge_groups(resolved(table["base"], (*derived, name)), table)

    return {name: msgspec.convert(resolved(name) | {"name": name}, record) for name in tables}


def on_kind(record: Settable, kind: str, what: str, example: str) -> Settable:
    """A stack's or an engine's settings on a kind of chip; its list `tpu` has those that differ on TPUs."""
    if kind != "tpu" or not getattr(record, "tpu", ()):
        return record
    return msgspec.structs.replace(with_listed(record, "tpu", what, example), tpu=())


def with_listed(record: Settable, name: str, what: str, example: str) -> Settable:
    """A stack or an engine with the settings of one of its lists."""
    where = f"The list {name} of the {what} {shorten(getattr(record, 'name', ''))} cannot be read"
    return with_settings(record, read_settings(getattr(record, name), example), where)


def record_of_file(path: str, what: str, known: Mapping[str, Settable], title: str) -> Settable:
    """A user's stack or engine, read from its file. Measurements of its base are not measurements of it."""
    table = {"base": "dragonscale", "measured": (), **file_table(path, what)}
    base = table["base"]
    if not isinstance(base, str) or base not in known:
        raise unknown(title, str(base), known, f"{path} says it as the base of its {what}.")
    where = f"The {what} of {shorten(path)} cannot be read"
    whole = merge_groups(msgspec.to_builtins(known[base]), table) | {"name": path}
    settings = checked_record(whole, type(known[base]), where)
    check_measured(getattr(settings, "measured", ()), where)
    return settings


class MeasuredOn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`rows` steps were fitted on a `chip`; of `left_out` others, of models not among them, the median error is
    `median` and the largest `worst`, and they took between 1 + `low` and 1 + `high` times the expected seconds. `what`:
    training, prefill or decode."""

    chip: str
    what: str
    source: str
    date: str
    rows: int
    left_out: int
    median: float
    worst: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """The measurement in a sentence.

        >>> MeasuredOn("h200", "training", "own", "2026-11-16", 16, 12, 0.04, 0.12, -0.1, 0.12).text
        'all of 12 steps of training measured on h200, of models that its constants were not fitted on, were within
        -10%/+12% (median 4%)'
        """
        steps = f"all of {self.left_out} steps of {self.what} measured on {self.chip}"
        errors = f"within {self.low:+.0%}/{self.high:+.0%} (median {self.median:.0%})"
        return f"{steps}, of models that its constants were not fitted on, were {errors}"


def check_measured(rows: Iterable[MeasuredOn], where: str) -> None:
    """Refuse impossible errors in what a file states about its measurements; `where` begins the message."""
    for row in rows:
        counts = 0 <= row.rows < MAX_STEPS and 0 <= row.left_out < MAX_STEPS
        errors = 0 <= row.median <= row.worst < math.inf and -1 < row.low <= row.high < math.inf  # false of nan too
        if not (counts and errors):
            raise InputError(
                f"{where}: what it says was measured of {shorten(row.what)} on {shorten(row.chip)} cannot be "
                f"(median {row.median}, worst {row.worst}, low {row.low}, high {row.high} of {row.left_out} steps "
                f"left out, {row.rows} fitted)."
            )


def is_file(name: str) -> bool:
    """Whether a stack or an engine is given as a file."""
    return name.lower().endswith(".toml")


def file_table(path: str, name: str) -> dict[str, Any]:
    """One table of a user's file."""
    tables = read_table(Path(path), "Stack")
    table = tables.get(name)
    if not isinstance(table, dict):
        present = ", ".join(f"[{key}]" for key in tables if key in ("stack", "engine")) or "neither"
        raise InputError(
            f"The file {shorten(path)} has no table [{name}] (of [stack] and [engine] it has {present}); `dscale "
            "calibrate --whole-steps` writes such files."
        )
    return table

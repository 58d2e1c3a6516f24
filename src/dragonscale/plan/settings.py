"""Settings of a stack or an engine: written `group.name=value`, merged group by group, and held to what a number can
be.

They come from four places: the tables that ship, files of a user's own, what follows an engine's name
(`vllm,memory.share=0.85`), and the lists of what differs on TPUs. All are read and checked here, so that a wrong one is
told in one sentence before anything is computed.

Constants of a stack or an engine may have been settled on whole steps (`MeasuredOn`): on which chip, how, and how far
off they were on steps left out. `dscale calibrate --whole-steps` writes them into a file of one's own, with a table
`[stack]` for training and one `[engine]` for serving; ours stand in `stacks.toml` and `engines.toml`.
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

MOST, MOST_BYTES = 1e9, 1e15
"""No constant reaches these: seconds, ratios and counts; bytes."""
_FRACTIONS = {"kernels.quantise", "recompute.selective_matmuls", "memory.fragmentation", "memory.share"}
_FRACTIONS |= {"experts.hidden", "experts.drift", "host.straggle", "host.layer_straggle"}
"""Parts of a whole; so is all of `overlap`."""
_DIVISORS = {"kernels.throttle", "kernels.shared_heads", "memory.loss_chunks", "memory.page", "memory.slack"}
_DIVISORS |= {"host.stream_interval", "host.graph_sizes", "program.padded_rows"}
_DIVISORS |= {"scheduling.max_tokens", "scheduling.max_sequences", "scheduling.poll"}
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


@functools.cache
def shipped_table(room: str, name: str) -> dict[str, Any]:
    """A TOML file of a room of this package; nobody changes what is in it."""
    return tomllib.loads((resources.files(f"dragonscale.{room}") / name).read_text(encoding="utf-8"))


def spelt(name: str, kind: str, known: Container[str]) -> str:
    """The name of a stack or an engine (`kind`) that people mean by another one, which may be a name as well.

    >>> spelt("llama_cpp", "engines", ["generic"]), spelt("vLLM", "engines", ["vllm"])
    ('generic', 'vllm')
    >>> spelt("megatron", "stacks", ["megatron", "megatron-lm"])
    'megatron-lm'
    """
    text = name.strip().lower()
    other = shipped_table("plan", "aliases.toml")[kind].get(text.replace("_", "-"), text)
    return other if other in known else text


def shipped_records(room: str, name: str, record: type[Settable]) -> dict[str, Settable]:
    """The stacks or engines that are known, by name; one with a `base` starts from that one's, at any depth."""
    tables = shipped_table(room, name)

    def settled(name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
        if name in above or name not in tables:
            raise InputError(f"{name!r}, which {above[-1]!r} starts from, is not there, or starts from itself.")
        table = tables[name]
        return merge_groups(settled(table["base"], (*above, name)), table) if table.get("base") else table

    return {name: msgspec.convert(settled(name) | {"name": name}, record) for name in tables}


def on_kind(record: Settable, kind: str, what: str, example: str) -> Settable:
    """A stack's or an engine's settings on a kind of chip: those of its list `tpu` differ on TPUs."""
    if kind != "tpu" or not getattr(record, "tpu", ()):
        return record
    return msgspec.structs.replace(with_listed(record, "tpu", what, example), tpu=())


def with_listed(record: Settable, name: str, what: str, example: str) -> Settable:
    """A stack or an engine with the settings of one of its own lists."""
    where = f"The list {name} of the {what} {shorten(getattr(record, 'name', ''))} cannot be read"
    return with_settings(record, read_settings(getattr(record, name), example), where)


def record_of_file(path: str, what: str, known: Mapping[str, Settable], title: str) -> Settable:
    """A user's stack or engine, as the file is now: what was measured of its base is not measured of it."""
    table = {"base": "dragonscale", "measured": (), **file_table(path, what)}
    base = table["base"]
    if not isinstance(base, str) or base not in known:
        raise unknown(title, str(base), known, f"{path} says it as the base of its {what}.")
    where = f"The {what} of {shorten(path)} cannot be read"
    whole = merge_groups(msgspec.to_builtins(known[base]), table) | {"name": path}
    found = made(whole, type(known[base]), where)
    check_measured(getattr(found, "measured", ()), where)
    return found


MOST_STEPS = 1_000_000


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
        """In a sentence.

        >>> MeasuredOn("h200", "training", "own", "2026-11-16", 16, 12, 0.04, 0.12, -0.1, 0.12).text
        'all of 12 steps of training measured on h200, of models that its constants were not fitted on, were within
        -10%/+12% (median 4%)'
        """
        those = f"all of {self.left_out} steps of {self.what} measured on {self.chip}"
        within = f"within {self.low:+.0%}/{self.high:+.0%} (median {self.median:.0%})"
        return f"{those}, of models that its constants were not fitted on, were {within}"


def check_measured(rows: Iterable[MeasuredOn], where: str) -> None:
    """Errors that a file states of itself are ones that steps can have; `where` begins the sentence about one that is
    not."""
    for row in rows:
        counts = 0 <= row.rows < MOST_STEPS and 0 <= row.left_out < MOST_STEPS
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
    found = read_table(Path(path), "Stack")
    table = found.get(name)
    if not isinstance(table, dict):
        there = ", ".join(f"[{key}]" for key in found if key in ("stack", "engine")) or "neither"
        raise InputError(
            f"The file {shorten(path)} has no table [{name}] (of [stack] and [engine] it has {there}); `dscale "
            "calibrate --whole-steps` writes such files."
        )
    return table

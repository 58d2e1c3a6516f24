"""The table of what each software stack can run, and the families of chips that it runs on.

>>> row = rules("megatron-core", "nvidia", piped=True)
>>> row.schedule, row.zero
(('1f1b', 'interleaved'), (1, 0))
>>> rules("megatron-bridge", "nvidia").zero  # as the stack it starts from
(1, 0, 2, 3)
"""

import functools
from typing import Any

import msgspec

from dragonscale.errors import InputError
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.chip import DTYPE_BYTES
from dragonscale.plan.settings import is_file, merge_groups, shipped_table
from dragonscale.training.plan.stack import load_stack, stacks

FAMILIES = {"nvidia": "NVIDIA GPUs", "amd": "AMD GPUs", "tpu": "TPUs", "other": "other chips"}
CONDITIONS = ("piped", "tuned", *FAMILIES)


class AdvisedAgainst(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Plans that a stack runs and its makers advise against: a given plan may be one, a search offers none unless ZeRO
    is pinned."""

    zero: tuple[int, ...]
    """These stages of ZeRO …"""
    beside: tuple[str, ...]
    """… with one of these axes …"""
    without: str
    """… on chips that do not multiply this format: nvfp4 came with Blackwell."""
    why: str
    source: str


class Legality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a stack takes of each setting of a plan, the usual choice first."""

    why: str
    formats: dict[str, tuple[str, ...]]
    """What it trains in, by family of chip."""
    axes: tuple[str, ...]
    """Mesh axes that may be larger than one."""
    context_by: tuple[str, ...]
    schedule: tuple[str, ...]
    zero: tuple[int, ...]
    remat: tuple[str, ...]
    optimizer: tuple[str, ...]
    offload: tuple[str, ...]
    layout: tuple[str, ...]
    """How layers are dealt to stages: `even`, `ends`, `by stage` (7-8-8-7)."""
    sequence: tuple[bool, ...]
    etp: tuple[bool, ...]
    fold: tuple[str, ...]
    uneven: bool
    """Whether even stages may differ by a layer."""
    rounds: tuple[str, ...]
    """Schedules that take microbatches in multiples of the stages."""
    shared_kv: bool
    """Whether several tensor ranks may share a KV head."""
    selective: tuple[str, ...] = ()
    """Sets of modules that a search offers in place of selective recomputation, of a stack that goes by modules."""
    functions: tuple[str, ...] = ()
    """The functions of models' programs that it computes; none: it has every model."""
    dense_formats: tuple[str, ...] = ()
    """Formats that it does not multiply experts in."""
    one_kind: bool = False
    """Whether all stages are alike: of one kind of layer, or of one pattern of them."""
    slices_experts: bool = True
    """Whether experts are sliced over `tensor` where there are fewer of them than chips."""
    whole_spread: bool = False
    """Whether experts that are spread over `expert` stay whole: `etp=true` goes with expert=1 alone."""
    ring_square: bool = False
    """Whether a ring needs sequences that its size divides twice."""
    unreleased_zero: tuple[int, ...] = ()
    """Stages of ZeRO that only somebody's own trainer has: a given plan may take them, a search offers none."""
    advised_against: tuple[AdvisedAgainst, ...] = ()
    whole_optimizers: tuple[str, ...] = ()
    """Optimizers that take whole weights and gradients: ZeRO-1 at most."""
    hosted_optimizers: tuple[str, ...] = ()
    """Optimizers whose state it can keep in the host's memory; none: all that it has."""
    data_zero: int = 0
    """The stage of ZeRO that its recipes shard data-parallel ranks with, where a plan says none; 0: whole replicas."""
    because: dict[str, str] = {}


class UsualChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What people run on some chips: those of a family, with these names, or that multiply a format as it is."""

    why: str
    source: str
    family: str = ""
    names: tuple[str, ...] = ()
    format: str = ""

    def suits(self, chip: Chip) -> bool:
        """Whether it is for a chip."""
        named = not self.names or chip.kin in self.names
        return named and self.family in ("", family(chip)) and (not self.format or native(chip, self.format))


WORDS = ("schedule", "zero", "context_by", "remat", "optimizer", "offload", "layout", "sequence", "etp", "fold")
"""Settings of a plan that are chosen from a list."""


OTHERS = ("Intel", "AWS", "Apple")
"""Vendors whose chips run software of their own."""


def family(chip: Chip) -> str:
    """The software world of a chip: `nvidia`, `amd`, `tpu`, or `other`.

    >>> from dragonscale.physics.hardware import load_chip
    >>> family(load_chip("h100")), family(load_chip("mi300x")), family(load_chip("v5p"))
    ('nvidia', 'amd', 'tpu')
    """
    if chip.kind == "tpu":
        return "tpu"
    if "AMD" in chip.title or chip.kin.startswith("mi3"):
        return "amd"
    return "nvidia" if chip.kind == "gpu" and not chip.title.startswith(OTHERS) else "other"


def _row(name: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """A stack's row over those that it starts from; a stack without any has that of `generic`."""
    table = shipped_table("training.plan", "legality.toml").get(name, {})
    start = table.get("like") or (load_stack(name).base if name in stacks() or is_file(name) else "")
    if start in seen:
        raise InputError(f"The stack {name!r} starts from itself in what it can run.")
    if not start and not table:
        return _row("generic")
    return merge_groups(_row(start, (*seen, name)) if start else {}, table)


@functools.cache
def rules(stack: str, chips: str, piped: bool = False, tuned: bool = False) -> Legality:
    """What a stack can run on a family of chips, with a pipeline or without, where it fine-tunes or not."""
    row = _row(stack)
    for condition in (chips, *(["piped"] if piped else []), *(["tuned"] if tuned else [])):
        row = merge_groups(row, row.get(condition, {}))
    kept = {name: value for name, value in row.items() if name not in (*CONDITIONS, "like")}
    return msgspec.convert(kept, Legality)


def native(chip: Chip, dtype: str) -> bool:
    """Whether a chip multiplies matrices of a dtype as they are."""
    return dtype in DTYPE_BYTES and (chip.format(dtype) == "native" or (dtype == "fp32" and bool(chip.matrix)))

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
    """Plans that a stack runs but its makers advise against: a given plan may be one, a search offers none unless ZeRO
    is fixed."""

    zero: tuple[int, ...]
    """These stages of ZeRO …"""
    beside: tuple[str, ...]
    """… with one of these axes …"""
    without: str
    """… on chips that do not multiply this format: nvfp4 came with Blackwell."""
    why: str
    source: str


class Legality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The values that a stack supports of each setting of a plan, the usual one first."""

    why: str
    formats: dict[str, tuple[str, ...]]
    """Formats of matmuls, by family of chip."""
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
    plan_remat: str = ""
    """The recompute of its own defaults or configs where it trains whole models and a plan says none; empty: none."""
    tuned_remat: str = ""
    """The recompute of its own defaults, or of its own examples, where it fine-tunes; empty: none."""
    quantized: bool = True
    """Whether adapters may stand beside frozen weights in few bits."""
    tuned_optimizer: str = ""
    """The optimizer that it trains every weight with where it fine-tunes and nobody says one; empty: the usual one."""
    quantized_remat: str = ""
    """The same where frozen weights are in few bits; empty: as where they are not."""
    because: dict[str, str] = {}

    def usual_remat(self, quantized: bool) -> str:
        """The recompute that it fine-tunes with where nobody says one; empty if it has no default of its own."""
        return (self.quantized_remat if quantized else "") or self.tuned_remat


class UsualChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What people run on some chips: those of a family, with these names, or that multiply a format natively."""

    why: str
    source: str
    family: str = ""
    names: tuple[str, ...] = ()
    format: str = ""

    def suits(self, chip: Chip) -> bool:
        """Whether it is for a chip."""
        if self.names and chip.kin not in self.names:
            return False
        return self.family in ("", family(chip)) and (not self.format or native(chip, self.format))


WORDS = ("schedule", "zero", "context_by", "remat", "optimizer", "offload", "layout", "sequence", "etp", "fold")
"""Settings of a plan that are chosen from a list."""

# Vendors whose chips run software of their own.
OTHERS = ("Intel", "AWS", "Apple")


def family(chip: Chip) -> str:
    """The software world of a chip: `nvidia`, `amd`, `tpu`, or `other`.

    >>> from dragonscale.physics.hardware import load_chip
    >>> family(load_chip("h100")), family(load_chip("mi300x")), family(load_chip("v5p"))
    ('nvidia', 'amd', 'tpu')
    """
    if chip.kind == "tpu":
        return "tpu"
    # What-if chips have the family of the chip that they are like.
    if "AMD" in chip.title or chip.kin.startswith("mi3"):
        return "amd"
    if chip.kind == "gpu" and not chip.title.startswith(OTHERS):
        return "nvidia"
    return "other"


def _row(name: str, derived: tuple[str, ...] = ()) -> dict[str, Any]:
    """A stack's row of the table merged over those that it starts from (`derived` are the stacks on the way here); a
    stack without any has that of `generic`."""
    table = shipped_table("training.plan", "legality.toml").get(name, {})
    base = table.get("like", "")
    if not base and (name in stacks() or is_file(name)):
        base = load_stack(name).base
    if base in derived:
        raise InputError(f"The stack {name!r} starts from itself in what it can run.")
    if base:
        return merge_groups(_row(base, (*derived, name)), table)
    return merge_groups({}, table) if table else _row("generic")


@functools.cache
def rules(stack: str, chips: str, piped: bool = False, tuned: bool = False) -> Legality:
    """What a stack can run on a family of chips, with a pipeline or without, where it fine-tunes or not."""
    row = _row(stack)
    # A row has tables for conditions, of which the later ones win.
    for condition, holds in ((chips, True), ("piped", piped), ("tuned", tuned)):
        if holds:
            row = merge_groups(row, row.get(condition, {}))
    settings = {name: value for name, value in row.items() if name not in (*CONDITIONS, "like")}
    return msgspec.convert(settings, Legality)


def native(chip: Chip, dtype: str) -> bool:
    """Whether a chip multiplies matrices of a dtype without converting them."""
    if dtype not in DTYPE_BYTES:
        return False
    return chip.format(dtype) == "native" or (dtype == "fp32" and bool(chip.matrix))

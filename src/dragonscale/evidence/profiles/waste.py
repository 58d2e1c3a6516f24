"""Time that computes nothing new: copies that only change a layout or a dtype, the padding of tiles, and experts that
see every token.

A TPU keeps arrays in whole tiles, so `bf16[8,100]` moves as many bytes as `bf16[8,128]`. An op that is bound by memory
loses the padded share of its bytes; one that is bound by its matmul is not counted, as its tiles are those of the
matrix unit.
"""

import re
from collections import defaultdict

import numpy as np

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.expanded import expanded_experts
from dragonscale.evidence.profiles.per_op import ChipRoof, OpTotals
from dragonscale.evidence.profiles.recording import OpText, Recording
from dragonscale.evidence.profiles.records import WasteLine
from dragonscale.evidence.profiles.roles import OpRole

PADDING = "padding of tiles"
EXPERTS = "experts multiplied with tokens that were not sent to them"
CASTS, STACKS, FILLS, LAYOUTS = (
    "casts between dtypes",
    "slices of stacked arrays, copied",
    "arrays filled with a constant",
    "layouts changed, arrays joined or padded",
)
COPIED = (CASTS, STACKS, FILLS, LAYOUTS)
_WORDS = (
    (CASTS, re.compile(r"(?i)convert|to_copy|(?<!broad)(?<!bit)(?<!no)cast")),
    (STACKS, re.compile(r"(?i)dynamic[-_](update[-_])?slice|memcpy|scan")),
    (FILLS, re.compile(r"(?i)broadcast|memset|fill|zeros")),
)
"""What a copy is for, by its name and text; the first that fits, else its layout is changed."""
_SMALL = 1e-4
"""Ops with less than this share of the step are not looked at for padding."""
_LONGEST = 20_000
"""Characters of an instruction that are read."""


def wasted(
    recording: Recording, totals: OpTotals, roles: list[OpRole], roof: ChipRoof, step_s: float
) -> tuple[WasteLine, ...]:
    """Layout copies and padding of a step, in seconds."""
    copies: dict[str, list[int]] = defaultdict(list)
    for one in totals.ran.tolist():
        if roles[one].kind == "copy" and totals.exposed[one] > 0:
            copies[copied_for(recording.ops[one])].append(one)
    lines = []
    for what, some in copies.items():
        seconds = float(totals.exposed[some].sum())
        lines.append(WasteLine(what, seconds, _share(seconds, step_s), _names(recording, some)))
    padded: dict[int, float] = {}
    for one in totals.ran.tolist():
        if (
            totals.exposed[one] < _SMALL * step_s
            or not recording.ops[one].text
            or roof.bound(roles[one])[1] == "compute"
        ):
            continue
        share = padding_share(recording.ops[one].text)
        if share > 0.01:
            padded[one] = share * float(totals.exposed[one])
    useless = expanded_experts(recording, roles)
    every = {one: float(totals.exposed[one]) * (1 - 1 / several) for one, several in useless.items()}
    if sum(every.values()) > 0:
        order = sorted(every, key=lambda one: -every[one])
        lines.append(
            WasteLine(EXPERTS, sum(every.values()), _share(sum(every.values()), step_s), _names(recording, order))
        )
    if padded:
        seconds = float(np.sum(list(padded.values())))
        order = sorted(padded, key=lambda one: -padded[one])
        lines.append(WasteLine(PADDING, seconds, _share(seconds, step_s), _names(recording, order)))
    return tuple(sorted(lines, key=lambda one: -one.seconds))


def copied_for(op: OpText) -> str:
    """What an op that only copies does it for.

    >>> copied_for(OpText("triton_poi_fused__to_copy_4")), copied_for(OpText("loop_broadcast_fusion_3")) == FILLS
    ('casts between dtypes', True)
    >>> copied_for(OpText("dynamic-slice_bitcast_fusion.1")) == STACKS
    True
    >>> copied_for(OpText("bfloat16_copy_kernel", caller="aten::to/aten::copy_", shapes=("bf16[8]", "f32[8]"))) == CASTS
    True
    """
    dtypes = {shape.split("[", 1)[0] for shape in op.shapes[:2]}
    if len(op.shapes) > 1 and op.caller.endswith("aten::copy_"):
        return CASTS if len(dtypes) > 1 else LAYOUTS
    text = op.text.split("metadata=", 1)[0][-400:]
    for words in (op.name, f"{text} {op.scope.rsplit('/', 1)[-1]}"):
        for what, pattern in _WORDS:
            if pattern.search(words):
                return what
    return LAYOUTS


def padding_share(text: str) -> float:
    """The part of an instruction's bytes of HBM that is padding.

    >>> round(padding_share("%c = bf16[64,100]{1,0:T(8,128)(2,1)} copy(bf16[64,100]{1,0:T(8,128)(2,1)} %p)"), 2)
    0.22
    """
    from dragonscale.evidence.xla.op_work import work_of_text

    try:
        work = work_of_text(text[:_LONGEST], "tpu")
    except (InputError, ValueError, KeyError, IndexError):
        return 0.0
    return 1 - work.hbm_bytes / work.moved_bytes if work.moved_bytes else 0.0


def _names(recording: Recording, some: list[int]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(recording.ops[one].name for one in some))[:5]


def _share(seconds: float, step_s: float) -> float:
    return seconds / step_s if step_s else 0.0
